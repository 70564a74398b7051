"""Runs scenarios at both servers.

After each step, the runner also compares the answers to all possible queries about the names that the scenario has
used. It compares them again when the fold has confirmed the view of namesrv-stream.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.differential.broker_requests import Broker, member_group, query_data_version
from tests.differential.client_requests import all_topics, cluster_info, get_kv, kv_list, route, topics_of_cluster
from tests.differential.comparison import Complaint, compare
from tests.differential.pair import OBSERVER, Both, Pair, until
from tests.differential.request import Request
from tests.differential.scenario import Ask, Close, Connect, Expire, Scenario, SendRaw, Step
from tests.differential.wire import V4_9_3, V5_3_3

#: The Java server applies unregistrations and closed connections after a short time.
_SETTLE_S: Final = 15.0
_UNREGISTER: Final = 104
#: How many scenarios wait for the fold together, and how long the first one waits at most; Java's heartbeat timeout is
#: 120 s.
_MAX_WAITING: Final = 200
_MAX_WAITING_S: Final = 60.0


@dataclass(slots=True)
class Known:
    """The names that a scenario has used, and all queries about them."""

    topics: dict[str, None] = field(default_factory=dict)
    brokers: dict[Broker, None] = field(default_factory=dict)
    names: dict[tuple[str, str], None] = field(default_factory=dict)
    clusters: dict[str, None] = field(default_factory=dict)
    keys: dict[tuple[str, str], None] = field(default_factory=dict)

    def learn(self, request: Request) -> None:
        """Add the names in the ext fields and topics of a request."""
        fields = request.ext_fields or {}
        self.topics |= dict.fromkeys(request.topics)
        if "topic" in fields:
            self.topics[fields["topic"]] = None
        if "brokerName" in fields and "clusterName" in fields:
            self.names[fields["brokerName"], fields["clusterName"]] = None
            self.clusters[fields["clusterName"]] = None
            if "brokerAddr" in fields:
                broker = Broker(fields["brokerName"], fields["brokerAddr"], cluster=fields["clusterName"])
                self.brokers[broker] = None
        if "namespace" in fields and "key" in fields:
            self.keys[fields["namespace"], fields["key"]] = None

    def questions(self) -> list[Request]:
        """Return all possible queries about the names."""
        return [
            cluster_info(),
            all_topics(),
            *(route(t, version) for t in self.topics for version in (V4_9_3, V5_3_3)),
            *(member_group(name, cluster) for name, cluster in self.names),
            *(topics_of_cluster(c) for c in self.clusters),
            *(query_data_version(b) for b in self.brokers),
            *(get_kv(namespace, key) for namespace, key in self.keys),
            *(kv_list(n) for n in dict.fromkeys(namespace for namespace, _ in self.keys)),
        ]


class Runner:
    """Runs one scenario at both servers.

    Attributes:
        name: Name of the scenario.
    """

    def __init__(self, pair: Pair, scenario: Scenario) -> None:
        self.name = scenario.name
        self._scenario = scenario
        self._session = pair.session()
        self._prefix = pair.new_prefix()
        self._known = Known()
        self._is_settled = True

    def run(self) -> None:
        """Execute the steps and compare; brokers that are registered at the end stay registered until ``close``.

        Raises:
            AssertionError: The servers differ; the text names the step.
        """
        scenario = self._scenario
        try:
            for number, step in enumerate(scenario.steps, 1):
                try:
                    self._do(step)
                    if scenario.is_observed:
                        self._observe()
                except (AssertionError, OSError) as error:
                    raise AssertionError(f"step {number} {_described(step)}: {error}") from error
        finally:
            for request in scenario.restore:
                self._session.ask(OBSERVER, [request.frame(self._prefix)])

    def confirm(self) -> None:
        """Compare again after the fold.

        Raises:
            AssertionError: The servers differ.
        """
        if self._scenario.is_observed:
            self._observe()

    def close(self) -> None:
        """Close all its connections, which removes its brokers."""
        self._session.close_all()

    def _do(self, step: Step) -> None:
        match step:
            case Ask():
                self._ask(step)
            case Close(labels, gone):
                for label in labels:
                    self._session.close(label)
                self._is_settled = False
                for broker in gone:
                    until(lambda broker=broker: self._is_gone(broker), _SETTLE_S, f"{broker} is removed")  # type: ignore[misc]
            case SendRaw(data, over):
                java, ours = self._session.connect(over)
                java.send_raw(data)
                ours.send_raw(data)
                assert java.is_closed_by_peer(), "the Java server keeps the connection"
                assert ours.is_closed_by_peer(), "namesrv-stream keeps the connection"
                self._session.close(over)
            case Expire(broker, over, is_kept_here):
                until(lambda: self._is_unlisted(broker), _SETTLE_S, f"{broker} expired")
                java, ours = self._session.connect(over)
                assert java.is_closed_by_peer(), "the Java server keeps the connection"
                if is_kept_here:
                    assert ours.ask([cluster_info().frame(self._prefix)]), "namesrv-stream no longer answers"
                else:
                    assert ours.is_closed_by_peer(), "namesrv-stream keeps the connection"
                self._session.close(over)
            case Connect(preamble, over):
                self._session.connect(over, preamble)

    def _ask(self, step: Ask) -> None:
        for request in step.requests:
            self._known.learn(request)
            self._is_settled &= request.code != _UNREGISTER and not request.is_oneway
        if not (step.has or step.differs):
            complaint = self._asked(step.requests, step.over, step.differs)
            assert complaint is None, str(complaint)
            return
        self._until_equal(step)

    def _until_equal(self, step: Ask) -> None:
        last: list[str] = []

        def is_equal() -> bool:
            frames = [r.frame(self._prefix) for r in step.requests]
            answers = self._session.ask(step.over, frames)
            java = " ".join(str(both.java) for both in answers)
            complaint = self._complaint(step.requests, answers, step.differs)
            last[:] = [str(complaint) if complaint else java]
            return complaint is None and step.has.replace("~", self._prefix) in java

        try:
            until(is_equal, _SETTLE_S, "both servers give the expected answer")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{last[0]}") from None

    def _observe(self) -> None:
        questions = tuple(self._known.questions())
        complaint = self._asked(questions, OBSERVER) if self._is_settled else self._settled(questions)
        assert complaint is None, f"then {complaint}"
        self._is_settled = True

    def _settled(self, questions: tuple[Request, ...]) -> Complaint | None:
        last: list[Complaint | None] = []

        def is_equal() -> bool:
            last[:] = [self._asked(questions, OBSERVER)]
            return last[0] is None

        try:
            until(is_equal, _SETTLE_S, "the same state")
        except AssertionError:
            return last[0]
        return None

    def _asked(self, requests: tuple[Request, ...], over: str, differs: str = "") -> Complaint | None:
        answers = self._session.ask(over, [r.frame(self._prefix) for r in requests])
        return self._complaint(requests, answers, differs)

    def _complaint(self, requests: Iterable[Request], answers: list[Both], differs: str) -> Complaint | None:
        asked = [r for r in requests if not r.is_oneway]
        complaints = (compare(r, b, self._prefix, differs) for r, b in zip(asked, answers, strict=True))
        return next((c for c in complaints if c), None)

    def _is_gone(self, broker: Broker) -> bool:
        (both,) = self._session.ask(OBSERVER, [query_data_version(broker).frame(self._prefix)])
        return not both.java.body and not both.ours.body

    def _is_unlisted(self, broker: Broker) -> bool:
        """Whether no cluster lists its name; unlike ``_is_gone`` this does not count as a heartbeat of the broker."""
        (both,) = self._session.ask(OBSERVER, [cluster_info().frame(self._prefix)])
        name = broker.name.replace("~", self._prefix).encode()
        return name not in both.java.body and name not in both.ours.body


def _described(step: Step) -> str:
    if isinstance(step, Ask):
        return f"{[r.code for r in step.requests]} over {step.over!r}"
    return str(step)[:200]


class Confirmations:
    """Scenarios that wait until the fold confirms the view of namesrv-stream.

    They wait together, because the fold takes a moment, but only briefly, because brokers could expire meanwhile.
    """

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._waiting: list[Runner] = []
        self._since_s = 0.0

    def add(self, runner: Runner) -> None:
        """Add a scenario whose steps have been executed."""
        if not self._waiting:
            self._since_s = time.monotonic()
        self._waiting.append(runner)
        if len(self._waiting) >= _MAX_WAITING or time.monotonic() - self._since_s > _MAX_WAITING_S:
            self.confirm()

    def confirm(self) -> None:
        """Compare all scenarios again.

        Raises:
            AssertionError: The servers differ; the text names the scenarios.
        """
        waiting, self._waiting = self._waiting, []
        self._pair.wait_for_fold()
        failures = []
        try:
            for runner in waiting:
                try:
                    runner.confirm()
                except AssertionError as error:
                    failures.append(f"{runner.name}: {error}")
        finally:  # only after all comparisons, because scenarios share the topic ""
            for runner in waiting:
                runner.close()
        assert not failures, "the fold does not confirm the view:\n" + "\n".join(failures)
