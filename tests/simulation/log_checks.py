"""What must be true of the log and of the tables at the end of a run, when all of it is folded again."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from namesrv_stream.route import reducer
from namesrv_stream.route.changes import Cause, ChangeKind, RouteChange, lease_key
from namesrv_stream.route.digest import digest_of
from namesrv_stream.route.events import partition_of
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.change_rows import decode_changes
from namesrv_stream.tables.snapshot import load_snapshot
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import StoredChanges
from tests.simulation.product import MAX_RETAINED
from tests.simulation.runtime.process import MS, SECOND

if TYPE_CHECKING:
    from tests.simulation.checks import Checks
    from tests.simulation.world import Part, World

#: The job commits progress without rows every second, unless the plan scales that.
_PROGRESS: Final = 10 * SECOND
#: A frozen server notices a close late, and the guard may hold a broker before it goes.
_EVIDENCE: Final = 1_000 * SECOND
#: A server that was frozen longer than this ignores closed connections for a moment.
_STALL: Final = 3 * SECOND
_JUST_RESUMED: Final = SECOND // 2
_OUTAGE: Final = 15 * SECOND
_SIGNS_OF_LIFE: Final = ("broker_heartbeats", "broker_registered")


class LogChecks:
    """The checks of one log against what the simulation knows."""

    def __init__(self, checks: "Checks") -> None:
        self._checks, self._world, self._fleet = checks, checks.world, checks.fleet

    def check(self) -> None:
        folded = self._fold_of_log()
        if folded is None:
            return
        table, rows = folded
        self._servers_agree(table)
        self._tables_are_the_fold(rows)
        for row in rows:
            if row.kind == ChangeKind.BROKER_LIVE and row.gone:
                if row.cause == Cause.EXPIRED:
                    self._expiry_is_due(row)
                if row.cause in (Cause.EXPIRED, Cause.SERVER_LOST):
                    self._no_server_heard_it(row)
                if row.cause == Cause.DISCONNECTED:
                    self._close_has_evidence(row)

    def _fold_of_log(self) -> tuple[RouteTable, list[RouteChange]] | None:
        """Fold the whole log again; None if Kafka does not have its beginning any more."""
        world, table, rows = self._world, RouteTable(), list[RouteChange]()
        snapshot = world.as_job(lambda: load_snapshot(tables_of(world.settings)))
        for partition in range(world.plan.partitions):
            log, covered = world.kafka.log(partition), snapshot.next_offsets.get(partition, 0)
            self._checks.done["tables cover what is in the log"] += 1
            if covered > log.end:
                self._checks.fail(
                    "tables cover what is in the log", f"partition {partition}: {covered} of {log.end} records"
                )
                return None
            if covered < log.end and world.scheduler.now - log.at(covered).at > _PROGRESS * world.plan.scale:
                self._checks.fail("the log is folded", f"partition {partition}: {covered} of {log.end} records")
                return None
            if log.first:
                return None
            state, groups, output = FoldState(partition, world.plan.partitions), GroupDict(), FoldOutput()
            for offset in range(covered):
                stored = log.at(offset)
                fold(state, groups, Record(partition, offset, stored.at_ms, stored.value), output)
            self._checks.done["limits hold"] += 1
            retained = sum(len(g.registrations.keys() - g.live_brokers.keys()) for g in groups.groups.values())
            if retained > MAX_RETAINED:
                self._checks.fail("limits hold", f"partition {partition} retains {retained} registrations")
            rows += output.changes
        reducer.apply(table, rows)
        return table, rows

    def _servers_agree(self, table: RouteTable) -> None:
        """Every server's table is that of the fold, once everything is committed."""
        partitions = self._world.plan.partitions
        expected = digest_of(table, partitions)
        for part in self._world.servers:
            assert part.core is not None
            self._checks.done["view is the fold"] += 1
            found = digest_of(part.core.name_server.table, partitions)
            if found != expected:
                self._checks.fail("view is the fold", f"{part.name} differs from a fold of the log")

    def _tables_are_the_fold(self, rows: list[RouteChange]) -> None:
        """``route_changes`` has every row of the fold once, and nothing else, except for rows past their retention."""
        world = self._world
        stored = world.as_job(lambda: StoredChanges.open(tables_of(world.settings)))
        assert isinstance(stored, StoredChanges)
        kept_from_ms = stored.kept_from_ms(world.settings.streaming.changes_retention_ms)
        for partition in range(world.plan.partitions):
            begin, end = stored.removed_below.get(partition, 0), stored.next_offsets.get(partition, 0)
            found = decode_changes(world.as_job(partial(stored.rows, partition, 0, end)))
            expected = [row for row in rows if row.partition == partition and row.offset < end]
            kept, required = (
                [row for row in some if row.offset >= begin or row.at_ms >= kept_from_ms] for some in (found, expected)
            )
            self._checks.done["rows are those of the fold"] += len(required)
            if kept != required:
                text = f"partition {partition} has {len(kept)} rows instead of {len(required)}"
                self._checks.fail("rows are those of the fold", text)

    def _expiry_is_due(self, row: RouteChange) -> None:
        """A broker expires at a tick, after more than its timeout of observed time of the server that ticked."""
        key, log = lease_key(row), self._world.kafka.log(row.partition)
        record = orjson.loads(log.at(row.offset).value)
        if record["kind"] == "settings_changed":
            return
        self._checks.done["an expiry is due"] += 1
        if record["kind"] != "tick":
            self._checks.fail("an expiry is due", f"{key.live_key.broker_addr} expired at {record['kind']}, no tick")
            return
        timeout_ms = self._fleet.of_key(key)[0].slot.known_timeout_ms
        observed_ms = self._observed_since_heard(row, key, record["server_id"])
        if observed_ms <= timeout_ms:
            text = f"{key.live_key.broker_addr} expired after {observed_ms} of {timeout_ms} ms of observed time"
            self._checks.fail("an expiry is due", text)

    def _observed_since_heard(self, row: RouteChange, key: LeaseKey, server_id: str) -> int:
        """Return the observed time of a server between its last sign of life of a broker and a tick.

        It is computed backwards from the records alone, so it is independent of the fold.
        """
        log, observed_ms = self._world.kafka.log(row.partition), 0
        later_ms, is_counted = log.at(row.offset).at_ms, True
        for offset in range(row.offset - 1, log.first - 1, -1):
            record = record_of(log.at(offset).value)
            if record.get("server_id") != server_id:
                continue
            if is_counted:
                gap_ms = later_ms - log.at(offset).at_ms
                observed_ms += max(0, min(gap_ms, self._world.settings.liveness.max_gap_ms))
            if _is_sign_of_life(record, key):
                break
            later_ms, is_counted = log.at(offset).at_ms, record["kind"] not in ("server_started", "server_resumed")
        return observed_ms

    def _no_server_heard_it(self, row: RouteChange) -> None:
        """No broker expires that a working server heard within its timeout, over a connection that stayed open."""
        key, at = lease_key(row), self._world.kafka.log(row.partition).at(row.offset).at
        self._checks.done["no broker expires early"] += 1
        kafka, scale = self._world.kafka, self._world.plan.scale  # a server logs the heartbeats with its next tick
        max_gap = self._world.settings.liveness.max_gap_ms * MS
        due = self._tick_before(row) + self._world.settings.liveness.tick_interval_ms * MS
        for life in self._fleet.of_key(key):
            timeout = life.slot.known_timeout_ms * MS
            if life.began > at - timeout - 2 * SECOND * scale or (life.ended is not None and life.ended < at):
                continue
            for part in self._world.servers:
                since = at - timeout + 1 * SECOND * scale
                # A server's clock advances by at most this gap for a jump of Kafka's clock.
                since += sum(since <= each <= at for each in kafka.jumps) * max_gap
                until = min(at - 2 * kafka.slowest, due)  # the tick may have waited for earlier records
                is_heard = life.acked_between(part.name, since, until) and part.ran_between(since, at)
                is_excused = self._world.network.was_closed(life.host, since, at) or self._is_replaced(part, since, at)
                if is_heard and not is_excused:
                    text = f"{life.addr} expired at {at / SECOND:.3f} s although {part.name} heard it"
                    self._checks.fail("no broker expires early", text)

    def _is_replaced(self, part: "Part", since: int, at: int) -> bool:
        """Return whether a clone of a server ran while the server was frozen.

        The clone ticks as the same server, and the frozen one reads only later what has arrived.
        """
        is_frozen = any(begin < at and end > since for begin, end in part.stalls())
        clones = (guest for guest in self._world.guests if guest.name == part.name)
        return is_frozen and any(clone.longest_run(since, at) > 0 for clone in clones)

    def _tick_before(self, row: RouteChange) -> int:
        """Return when the server whose tick made the row ticked before. A tick waits for requests that are waiting."""
        log = self._world.kafka.log(row.partition)
        server_id = record_of(log.at(row.offset).value).get("server_id")
        for offset in range(row.offset - 1, log.first - 1, -1):
            record = record_of(log.at(offset).value)
            if record.get("kind") == "tick" and record.get("server_id") == server_id:
                return log.at(offset).at
        return 0

    def _close_has_evidence(self, row: RouteChange) -> None:
        """A closed connection removes a broker only if it or the network closed one, and the server could listen."""
        record = self._world.kafka.log(row.partition).at(row.offset)
        host = (row.broker_addr or "").partition(":")[0]
        self._checks.done["a close is evidence"] += 1
        if not self._world.network.was_closed(host, record.at - _EVIDENCE * self._world.plan.scale, record.at):
            text = f"no peer closed a connection of {host} before {record.at / SECOND:.3f} s"
            self._checks.fail("a close is evidence", text)
        event = record_of(record.value)
        if event.get("kind") != "broker_disconnected":
            return
        for name, begin, end in self._world.stalls:
            if (
                name == event["server_id"]
                and end - begin > _STALL * self._world.plan.scale
                and end <= record.at < end + _JUST_RESUMED
                # It may have noticed the close before, and kept the event because Kafka did not answer.
                and not self._world.network.was_closed(host, begin - _OUTAGE * self._world.plan.scale, begin)
            ):
                text = f"{name} was frozen until {end / SECOND:.3f} s and reported a close of {host} at once"
                self._checks.fail("a close is evidence", text)


def record_of(value: bytes) -> dict[str, Any]:
    """Return the fields of a record; none if it is unreadable."""
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def connections_of(world: "World", key: LeaseKey, server_id: str) -> list[int]:
    """Return the connections over which a server's present process received a broker's signs of life, in log order."""
    log, found = world.kafka.log(partition_of(key.broker_name, world.plan.partitions)), list[int]()
    for stored in log.records:
        record = record_of(stored.value)
        if record.get("server_id") == server_id:
            if record["kind"] == "server_started":
                found.clear()
            elif record["kind"] in _SIGNS_OF_LIFE:
                found += [int(item["connection_id"]) for item in _items_of(record, key)]
    return found


def _items_of(record: dict[str, Any], key: LeaseKey) -> list[dict[str, Any]]:
    place = (key.broker_name, key.live_key.broker_addr)
    items: list[dict[str, Any]] = record.get("items", [record])
    return [item for item in items if (item["broker_name"], item["broker_addr"]) == place]


def _is_sign_of_life(record: dict[str, Any], key: LeaseKey) -> bool:
    return record["kind"] in _SIGNS_OF_LIFE and bool(_items_of(record, key))
