"""Executes random walks at both servers, compares after each step, and shortens failing walks."""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.differential.broker_requests import Broker, member_group, query_data_version, unregister
from tests.differential.client_requests import (
    all_topics,
    cluster_info,
    delete_kv,
    get_kv,
    kv_list,
    route,
    topics_of_cluster,
    unit_sub_topics,
    unit_sub_un_unit_topics,
    unit_topics,
    update_config,
)
from tests.differential.comparison import Complaint, compare
from tests.differential.pair import OBSERVER, Pair, until
from tests.differential.random_walk import (
    ADDRS,
    CLUSTER_OF,
    CLUSTERS,
    NAMES,
    NAMESPACES,
    NEVER_REGISTERED,
    WALKED_TOPICS,
    Closes,
    Does,
    Leaves,
    Step,
    describe,
)
from tests.differential.request import Request
from tests.differential.wire import V4_9_3, V5_3_3

_SETTLE_S: Final = 20.0
#: Every so many comparisons include the further questions.
FULL_EVERY: Final = 5
_DEFAULTS: Final = update_config(
    supportActingMaster="false",
    orderMessageEnable="false",
    returnOrderTopicConfigToBroker="true",
    deleteTopicWithBrokerRegistration="false",
)


def questions() -> tuple[Request, ...]:
    """Return the queries after each step: routes in both forms, and the tables behind them."""
    names = (*WALKED_TOPICS, NEVER_REGISTERED)
    return (
        cluster_info(),
        all_topics(),
        *(route(name, version) for name in names for version in (V5_3_3, V4_9_3)),
        *(member_group(name) for name in NAMES),
        *(kv_list(namespace) for namespace in NAMESPACES),
    )


def further_questions() -> tuple[Request, ...]:
    """Return the additional queries after every few steps: lists, versions, zones."""
    return (
        *questions(),
        unit_topics(),
        unit_sub_topics(),
        unit_sub_un_unit_topics(),
        *(topics_of_cluster(cluster) for cluster in CLUSTERS),
        *(route(name, __ZONE_MODE="true", __ZONE_NAME="z1") for name in WALKED_TOPICS),
        *(query_data_version(Broker(n, a, cluster=CLUSTER_OF[n])) for n, addrs in ADDRS.items() for a in addrs),
        *(get_kv(namespace, key) for namespace in NAMESPACES for key in WALKED_TOPICS),
    )


class _Questions:
    """Queries with their frames, which are made once for a walk."""

    def __init__(self, requests: tuple[Request, ...], prefix: str) -> None:
        self.requests = requests
        self.frames = [r.frame(prefix) for r in requests]


class Walker:
    """Executes one walk at both servers, with unique names.

    Args:
        pair: The servers.

    Attributes:
        done: Number of steps that were executed and compared.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._session = pair.session()
        self._prefix = pair.new_prefix()
        self._often = _Questions(questions(), self._prefix)
        self._seldom = _Questions(further_questions(), self._prefix)
        self.done = 0
        self._comparisons = itertools.count(1)

    def walk(self, made: Sequence[Step]) -> None:
        """Execute the steps with a comparison after each, and compare again after the fold.

        Raises:
            AssertionError: The servers differ; the text names the step.
        """
        try:
            for step in made:
                try:
                    self._do(step)
                except (AssertionError, OSError) as error:
                    where = f"step {self.done + 1} of {len(made)}, {describe(step)}"
                    raise AssertionError(f"{where}\n{error}") from error
                self.done += 1
            self._pair.wait_for_fold()
            complaint = self._compared(in_full=True)
            assert complaint is None, f"after the fold: {complaint}"
        finally:
            kept = [delete_kv(namespace, key) for namespace in NAMESPACES for key in WALKED_TOPICS[:3]]
            self._session.ask(OBSERVER, [request.frame(self._prefix) for request in (_DEFAULTS, *kept)])
            self._session.close_all()

    def _do(self, step: Step) -> None:
        match step:
            case Does(request, over):
                self._ask(request, over)
                complaint = self._compared()
                assert complaint is None, f"then {complaint}"
            case Leaves(broker):
                if self._seen(broker)[0]:  # otherwise Java may remove write permissions (ADR 0005)
                    self._ask(unregister(broker), broker.addr)
                    self._wait_until_forgotten(broker)
                    self._settle()
            case Closes(broker):
                is_live, is_member = self._seen(broker)
                if is_member:  # otherwise Java would keep its live entry for ever (ADR 0005)
                    self._session.close(broker.addr)
                    if is_live:
                        self._wait_until_forgotten(broker)
                    self._settle()

    def _ask(self, request: Request, over: str) -> None:
        (both,) = self._session.ask(over, [request.frame(self._prefix)])
        complaint = compare(request, both, self._prefix)
        assert complaint is None, str(complaint)

    def _seen(self, broker: Broker) -> tuple[bool, bool]:
        """Whether any server has the broker as live and as a member of its group."""
        asked = (query_data_version(broker), member_group(broker.name, broker.cluster))
        version, group = self._session.ask(OBSERVER, [r.frame(self._prefix) for r in asked])
        is_live = bool(version.java.body or version.ours.body)
        return is_live, any(f'"{broker.addr}"'.encode() in answer.body for answer in group)

    def _wait_until_forgotten(self, broker: Broker) -> None:
        # Java unregisters after its answer; for an address that lost its id, only 322 shows this.
        until(lambda: not self._seen(broker)[0], _SETTLE_S, f"both servers have removed {broker}")

    def _settle(self) -> None:
        last: list[Complaint | None] = []

        def is_equal() -> bool:
            last[:] = [self._compared()]
            return last[0] is None

        try:
            until(is_equal, _SETTLE_S, "the same state")
        except AssertionError:
            raise AssertionError(f"then {last[0]}") from None

    def _compared(self, *, in_full: bool = False) -> Complaint | None:
        in_full = in_full or next(self._comparisons) % FULL_EVERY == 0
        asked = self._seldom if in_full else self._often
        answers = self._session.ask(OBSERVER, asked.frames)
        complaints = (compare(r, both, self._prefix) for r, both in zip(asked.requests, answers, strict=True))
        return next((c for c in complaints if c), None)


def shrunk(made: Sequence[Step], fails: Callable[[Sequence[Step]], bool], deadline_s: float = 60.0) -> list[Step]:
    """Return a shorter walk that still fails: parts are removed, halves first, until the deadline.

    Args:
        made: A walk that fails with its last step.
        fails: Whether a walk fails, with its own unique names.
        deadline_s: Seconds after which the search stops.
    """
    until_s = time.monotonic() + deadline_s
    kept, size = list(made), len(made) // 2
    while size and time.monotonic() < until_s:
        at = 0
        while at < len(kept) and time.monotonic() < until_s:
            fewer = kept[:at] + kept[at + size :]
            if fewer and fails(fewer):
                kept = fewer
            else:
                at += size
        size //= 2
    return kept
