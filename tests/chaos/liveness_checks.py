"""Checks that exactly the dead brokers were removed, and how soon, by comparison with the fleet's own records.

**Live brokers.** A broker is live if it ran through the whole timeout (and a margin) before a row says that it
expired. Faults of servers, job, Kafka or the machine do not excuse the expiry: unobserved time
must not age a broker. An expiry is excused only if no server could hear the broker *in observed time*:

* no running server at which the broker was still registered had heard it within its timeout, and
* at every server that observed more than its timeout, the observed time is within the timeout if one subtracts the time
  in which the rig had cut the broker off or the fleet itself was stalled. For name servers such a broker is dead.

The check applies to rows of cause ``expired``, ``server_silent`` and ``server_lost``. Removals of live brokers by a
closed connection are only counted: this is RocketMQ's rule, and the fleet closes connections when requests time out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange
from tests.chaos.evidence import Commit, Evidence
from tests.chaos.observed_log import DIRECT, ObservedLog, ServerTime
from tests.chaos.truth import BrokerKey, Lifetime, Span, Truth

FALSE_CAUSES: Final = (Cause.EXPIRED, Cause.SERVER_SILENT, Cause.SERVER_LOST)

#: Margin before the timeout of an expiry, for signs of life that were in transit then.
MARGIN_MS: Final = 2_000
#: Time after a cut in which a broker still waits for the answer to a lost request, and then reconnects.
RECONNECT_MS: Final = 2_500
#: While nothing is broken, an acknowledged sign of life is in the log, before the next ticks, within this time.
LOGGED_MS: Final = 2_500
#: Observed time for which a dead broker may stay beyond its timeout.
LATE_MS: Final = 2_000

_WHERE: Final = re.compile(r" at (\S+), timeout \d+ ms")


@dataclass(frozen=True, slots=True)
class Ending:
    """A row that removes a broker process."""

    key: BrokerKey
    partition: int
    offset: int
    at_ms: int
    cause: str
    detail: str

    @property
    def server(self) -> str | None:
        """The server whose clock expired it, from the row."""
        found = _WHERE.search(self.detail)
        return found[1] if found else None


class Lag(NamedTuple):
    """The delay of an expiry, in observed time of the server whose clock expired the broker.

    Attributes:
        in_log_ms: From the end of the timeout to the record that caused the expiry.
        in_table_ms: From the end of the timeout to the commit with the row.
    """

    ending: Ending
    in_log_ms: int
    in_table_ms: int


def endings(stored: Iterable[RouteChange]) -> list[Ending]:
    """Return all endings, in log order."""
    return [
        Ending(
            BrokerKey(row.broker_name or "", row.cluster or "", row.broker_addr or ""),
            row.partition,
            row.offset,
            row.at_ms,
            row.cause,
            row.detail or "",
        )
        for row in stored
        if row.kind == ChangeKind.BROKER_LIVE and row.gone
    ]


def false_expiries(truth: Truth, log: ObservedLog, found: Iterable[Ending]) -> tuple[list[str], int]:
    """Return live brokers that were removed as dead, and the number of excused removals."""
    texts: list[str] = []
    excused = 0
    for ending in found:
        if ending.cause not in FALSE_CAUSES:
            continue
        for life in truth.of(ending.key):
            if not life.is_up(ending.at_ms - life.timeout_ms - MARGIN_MS, ending.at_ms):
                continue
            if is_excused(truth, log, life, ending):
                excused += 1
            else:
                texts.append(f"{ending} although it is live since {life.up_ms}, with servers {life.servers}")
    return texts, excused


def is_excused(truth: Truth, log: ObservedLog, life: Lifetime, ending: Ending) -> bool:
    """Whether no name server could hear a live broker."""
    was_deaf = False
    for server in life.servers:
        heard_ms = log.heard_ms(life.key, server, ending.offset)
        if heard_ms is None:
            continue
        time = log.time_of(ending.partition, server)
        age_ms = time.at_offset(ending.offset) - heard_ms
        deaf_ms = _deaf_ms(truth, life, server, time, heard_ms, heard_ms + age_ms)
        was_deaf |= deaf_ms > 0
        broken = truth.broken(ending.at_ms - life.timeout_ms - MARGIN_MS, ending.at_ms, server, "kafka")
        was_away = any(span.what != "cut" for span in broken) or truth.has_parted(life.key, server, ending.at_ms)
        if age_ms - deaf_ms > life.timeout_ms or (not deaf_ms and not was_away):
            return False
    return was_deaf


def _deaf_ms(truth: Truth, life: Lifetime, server: str, time: ServerTime, from_ms: int, to_ms: int) -> int:
    """Return the observed time within ``[from_ms, to_ms]`` of a server's clock in which it could not hear a broker."""
    mute = "direct" if DIRECT in life.servers else "fleet"
    spans = [
        (span.from_ms, span.to_ms + (RECONNECT_MS if span.what == "cut" else 0))
        for span in truth.spans
        if (span.what == "cut" and span.part == server and span.cluster in ("", life.key.cluster))
        or (span.what == "stall" and span.part == mute)
    ]
    deaf_ms, begin_ms = 0, from_ms
    for span_from_ms, span_to_ms in sorted(spans):
        begin_ms = max(begin_ms, time.at_time(span_from_ms))
        end_ms = min(to_ms, time.at_time(span_to_ms))
        deaf_ms += max(0, end_ms - begin_ms)
        begin_ms = max(begin_ms, end_ms)
    return deaf_ms


def early_expiries(truth: Truth, found: Iterable[Ending]) -> Iterator[str]:
    """Return expiries within the timeout after a heartbeat that a server had acknowledged.

    Observed time never runs faster than the machine's clock. A sign of life counts if neither that server nor Kafka was
    broken around it, because only then it is certainly in the log, before the ticks that follow.
    """
    for ending in found:
        if ending.cause != Cause.EXPIRED:
            continue
        for server, timeout_ms in sorted({(s, life.timeout_ms) for life in truth.of(ending.key) for s in life.servers}):
            sent_ms = truth.last_ack_ms(ending.key, server, ending.at_ms - LOGGED_MS)
            if sent_ms is None or ending.at_ms - sent_ms >= timeout_ms:
                continue
            if server != ending.server and truth.has_parted(ending.key, server, ending.at_ms):
                continue  # the server stopped being its holder in another way
            if not truth.broken(sent_ms - LOGGED_MS, sent_ms + LOGGED_MS, server, "kafka"):
                yield f"{ending} only {ending.at_ms - sent_ms} ms after {server} acknowledged a sign of life"


def never_early_by_the_log(lags: Iterable[Lag]) -> Iterator[str]:
    """Return expiries at which the observed time had not exceeded the timeout."""
    for lag in lags:
        if lag.in_log_ms <= 0:
            yield f"{lag.ending}: its age is {-lag.in_log_ms} ms below its timeout"


def wrong_at_the_end(truth: Truth, served: dict[str, frozenset[BrokerKey]]) -> Iterator[str]:
    """Return servers that have dead brokers or lack live ones, although no broker has recently ended or started."""
    alive = {life.key for life in truth.lives if life.down_ms is None}
    for server, brokers in sorted(served.items()):
        for key in sorted(brokers - alive):
            yield f"{server} has {key}, which is dead"
        for key in sorted(alive - brokers):
            yield f"{server} lacks {key}, which lives"


def missing_endings(truth: Truth, log: ObservedLog, stored: Iterable[RouteChange], end_ms: int) -> Iterator[str]:
    """Return dead brokers that the rows still have although every server that knew them observed their timeout."""
    changes_of: dict[BrokerKey, list[tuple[int, bool]]] = {}
    for row in stored:
        if row.kind == ChangeKind.BROKER_LIVE:
            key = BrokerKey(row.broker_name or "", row.cluster or "", row.broker_addr or "")
            changes_of.setdefault(key, []).append((row.offset, row.gone))
    for life, until_ms in _deaths(truth, end_ms):
        partition = log.partition(life.key)
        if partition is None:
            continue  # no server ever heard of it
        offset = log.offset_at(partition, until_ms)
        before = [gone for at, gone in changes_of.get(life.key, []) if at < offset]
        if not before or before[-1]:
            continue
        heard = [(server, log.heard_ms(life.key, server, offset)) for server in log.servers_of(life.key)]
        ages = [log.time_of(partition, s).at_time(until_ms) - clock_ms for s, clock_ms in heard if clock_ms is not None]
        if ages and min(ages) > life.timeout_ms + LATE_MS:
            yield f"{life} is not removed at {until_ms}, {min(ages)} ms of observed time after it was heard"


def _deaths(truth: Truth, end_ms: int) -> Iterator[tuple[Lifetime, int]]:
    """Return each ended broker process, and until when its key had no successor."""
    by_key: dict[BrokerKey, list[Lifetime]] = {}
    for life in truth.lives:
        by_key.setdefault(life.key, []).append(life)
    for lives in by_key.values():
        for life, until_ms in zip(lives, [*(after.up_ms for after in lives[1:]), end_ms], strict=True):
            if life.down_ms is not None:
                yield life, until_ms


def measured_lags(evidence: Evidence, log: ObservedLog, found: Iterable[Ending]) -> list[Lag]:
    """Return the lag of each expiry by timeout."""
    timeouts = {life.key: life.timeout_ms for life in evidence.truth.lives}
    lags = []
    for ending in found:
        server, timeout_ms = ending.server, timeouts.get(ending.key)
        if ending.cause != Cause.EXPIRED or server is None or timeout_ms is None:
            continue
        heard_ms = log.heard_ms(ending.key, server, ending.offset)
        commit = commit_of(evidence.commits, ending)
        if heard_ms is None or commit is None:
            continue
        time = log.time_of(ending.partition, server)
        due_ms = heard_ms + timeout_ms
        lags.append(Lag(ending, time.at_offset(ending.offset) - due_ms, time.at_time(commit.at_ms) - due_ms))
    return lags


def commit_of(commits: Sequence[Commit], ending: Ending) -> Commit | None:
    """Return the commit that contains the row."""
    for commit in commits:
        if commit.next_offsets.get(ending.partition, 0) > ending.offset:
            return commit
    return None


def while_all_ran(evidence: Evidence, log: ObservedLog, lags: Iterable[Lag]) -> list[Lag]:
    """Return the endings during which nothing was broken and the job had caught up with earlier faults.

    The period is from two seconds before the row to its commit. A machine with many more runnable processes than cores
    counts as broken, too.
    """
    times = [_with_recovery(evidence, log, span) for span in evidence.truth.spans if span.what != "cut"]
    kept = []
    for lag in lags:
        commit = commit_of(evidence.commits, lag.ending)
        from_ms, to_ms = lag.ending.at_ms - MARGIN_MS, commit.at_ms if commit else lag.ending.at_ms
        if not any(begin_ms <= to_ms and end_ms >= from_ms for begin_ms, end_ms in times):
            kept.append(lag)
    return kept


def _with_recovery(evidence: Evidence, log: ObservedLog, span: Span) -> tuple[int, int]:
    """Extend faults until the table contains the first records after them."""
    ends = [span.to_ms]
    for partition in evidence.committed:
        offset = log.offset_at(partition, span.to_ms)
        ends += [c.at_ms for c in evidence.commits if c.next_offsets.get(partition, 0) > offset][:1]
    return span.from_ms, max(ends)
