"""Every cause of ``why`` as a scenario with real brokers, and the installation on which the scenarios take place."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from namesrv_stream.route.why.findings import Why
from tests.support.command_line import run_command
from tests.support.java_client import JavaClient
from tests.support.kafka import REPOSITORY
from tests.support.processes import Process, suspend, wait_until
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

Answer = dict[str, Any]
SETTLE_S: Final = 60.0
HISTORY_S: Final = 300.0
#: Pause between two calls of ``why`` while a test waits for a cause.
_ASK_EVERY_S: Final = 0.2
#: Settings of all servers: the guard counts new brokers, two are enough for it to act, and it holds them for less time.
_GUARD: Final[dict[str, Any]] = {
    "liveness__guard_min_brokers": "2",
    "liveness__guard_hold_timeouts": "1",
    "liveness__guard_known_ms": "0",
}
#: Brokers send their timeout only in acting-master mode.
_TIMEOUT: Final = {
    "enableSlaveActingMaster": "true",
    "brokerNotActiveTimeoutMillis": "6000",
    "brokerHeartbeatInterval": "1000",
}


@dataclass(frozen=True)
class Scenario:
    """What happens, and a question whose answer begins with the cause.

    Attributes:
        happens: What the test does to the brokers or to the servers.
        ask: Arguments of the command.
        row: Columns of the newest row of the evidence; empty if the cause has none.
        says: A part of the answer's text.
        at: The servers that receive the question.
        is_past: Whether the same question with ``--at`` later has the same answer from the tables alone.
        cures: How the test carries out each remedy of the cause, in their order; "" if it does not.
    """

    happens: str
    ask: str
    row: Mapping[str, object] = field(default_factory=dict)
    says: str = ""
    at: str = "first"
    is_past: bool = True
    cures: tuple[str, ...] = ("",)


#: In the order of docs/why.md. The tests of test_why.py reproduce them.
SCENARIOS: Final[Mapping[Why, Scenario]] = {
    Why.NEVER_REGISTERED: Scenario(
        "a broker has TBW102, but the topic does not exist",
        "Payments",
        cures=("mqadmin updateTopic", "a message is sent"),
    ),
    Why.BROKER_NEVER_REGISTERED: Scenario("other brokers run", "other-broker-x --broker"),
    Why.AUTO_CREATION_OFF: Scenario(
        "a broker runs with autoCreateTopicEnable=false",
        "Payments",
        cures=("mqadmin updateTopic", "a broker with autoCreateTopicEnable=true is started, and a message is sent"),
    ),
    Why.DEFAULT_TOPIC_GONE: Scenario(
        "the broker with TBW102 is stopped",
        "Payments",
        {"topic": "TBW102", "gone": True},
        cures=("mqadmin updateTopic", "the broker is started again, and a message is sent"),
    ),
    Why.NO_BROKERS: Scenario("no broker has been started", "Payments", cures=("a broker is started",)),
    Why.NEAR_MISS: Scenario(
        "the topic is WhyOrders", "whyorder", says="WhyOrders", cures=("the client asks for WhyOrders",)
    ),
    Why.TOPIC_DELETED: Scenario(
        "mqadmin deleteTopic",
        "WhyDeleted",
        {"cause": "topic_deleted", "gone": True},
        "by 127.0.0.1 at ",
        cures=("mqadmin updateTopic",),
    ),
    Why.TOPIC_LEFT_OUT: Scenario(
        "a killed broker returns without its topics.json",
        "WhyEnds",
        {"cause": "disconnected"},
        "why-b",
        cures=("mqadmin updateTopic",),
    ),
    Why.BROKER_EXPIRED: Scenario(
        "the broker hangs (SIGSTOP)",
        "WhyEnds",
        {"cause": "expired", "topic": "WhyEnds", "broker_name": "why-b"},
        cures=("the broker continues (SIGCONT)",),
    ),
    Why.BROKER_DISCONNECTED: Scenario(
        "the broker is killed (SIGKILL)",
        "WhyEnds",
        {"cause": "disconnected", "topic": "WhyEnds"},
        cures=("the broker is started again",),
    ),
    Why.BROKER_UNREGISTERED: Scenario(
        "the broker is stopped (SIGTERM)",
        "why-b --broker",
        {"cause": "unregistered", "broker_name": "why-b"},
        cures=("the broker is started again",),
    ),
    Why.BROKER_REMOVED: Scenario(
        "the only server that hears the broker is killed", "why-b --broker", {"cause": "server_lost"}, "server_lost"
    ),
    Why.ONLY_SLAVES: Scenario(
        "the master hangs",
        "WhyEnds",
        {"kind": "broker_live", "broker_id": 0, "gone": True},
        cures=("the master continues",),
    ),
    Why.WRITE_PERM_WIPED: Scenario(
        "mqadmin wipeWritePerm",
        "WhyOrders",
        {"cause": "write_perm_wiped", "topic": "WhyOrders"},
        "by 127.0.0.1",
        cures=("", "mqadmin addWritePerm"),
    ),
    Why.NO_PERMISSION: Scenario(
        "mqadmin updateTopic -p 0", "WhyPerm0", {"perm": 0}, cures=("mqadmin updateTopicPerm",)
    ),
    Why.READ_ONLY: Scenario("mqadmin updateTopic -p 4", "WhyPerm4", {"perm": 4}, cures=("mqadmin updateTopicPerm",)),
    Why.WRITE_ONLY: Scenario("mqadmin updateTopic -p 2", "WhyPerm2", {"perm": 2}, cures=("mqadmin updateTopicPerm",)),
    Why.OTHER_CLUSTER: Scenario(
        "the broker is in c-a",
        "WhyOrders --cluster c-b",
        {"cluster": "c-a"},
        "c-a",
        cures=("the client asks in c-a", ""),
    ),
    Why.OTHER_SERVER: Scenario(
        "the job hangs, and mqadmin updateTopic reaches one server",
        "WhySkewed",
        at="strict and first",
        is_past=False,
        cures=("the job continues",),
    ),
    Why.HIDDEN_BY_ZONE: Scenario(
        "the broker is in the zone east",
        "WhyOrders --zone west",
        {"zone_name": "east"},
        cures=("the client is in the zone of the broker", "the client asks without a zone"),
    ),
    Why.ADDRESS_NOT_MAPPED: Scenario(
        "the client's view maps nothing",
        "WhyOrders --client 198.51.100.7",
        says="left out in view far",
        is_past=False,
        cures=("view set with a mapping",),
    ),
    Why.ORDER_NAMES_GONE: Scenario(
        "mqadmin updateOrderConf names an unknown broker",
        "WhyOrdered",
        {"kind": "kv"},
        "why-gone",
        cures=("", "mqadmin updateOrderConf"),
    ),
    Why.CONTRADICTION: Scenario(
        "topics.json of a stopped broker is edited",
        "WhyContradiction",
        {"kind": "broker_live", "broker_name": "why-a"},
        cures=("", "mqadmin updateTopic with other queues", "config set"),
    ),
    Why.HELD_BY_GUARD: Scenario(
        "all brokers of a cluster hang", "WhyEnds", {"kind": "guard", "cause": "guard_held"}, cures=("guard release",)
    ),
    Why.HEARTBEAT_LATE: Scenario(
        "the broker hangs for half of its timeout", "why-b --broker", is_past=False, cures=("the broker continues",)
    ),
    Why.ACCESS_DENIED: Scenario(
        "the broker is outside admin.broker_networks",
        "why-b --broker",
        says="127.0.0.1",
        at="strict",
        is_past=False,
        cures=("", ""),
    ),
    Why.CLIENT_CACHE: Scenario(
        "mqadmin updateTopic", "WhyOrders", {"cause": "registered", "topic": "WhyOrders"}, cures=("the test waits",)
    ),
    Why.SERVER_STALE: Scenario("the job hangs", "WhySkewed", at="strict", is_past=False, cures=("the job continues",)),
    Why.SERVER_BLIND: Scenario("Kafka hangs", "Payments", is_past=False, cures=("Kafka continues",)),
    Why.NOTHING_WRONG: Scenario(
        "a broker runs for longer than clients keep a route", "why-a --broker", {"broker_name": "why-a", "gone": False}
    ),
}


class Site:
    """An installation without other brokers, so that the tests decide which topics have a route.

    Attributes:
        broker: A master in the zone "east" that creates no topics automatically.
        ending: A master that creates topics automatically, with a timeout of 6 s. It is started by its test.
        slave: Its slave, which registers with ``lone``, and tries to register with ``strict``.
        answers: The answers of the present test.
        cured: The remedies that the present test has carried out, as (cause, number).
        took_s: How long each answer took.
    """

    def __init__(self, product: Stack, mqadmin: Mqadmin, client: JavaClient, folder: Path, running: ExitStack) -> None:
        self.product, self.mqadmin, self.client = product, mqadmin, client
        self.answers: dict[Why, Answer] = {}
        self.cured: set[tuple[Why, int]] = set()
        self.took_s: list[float] = []
        self._folder, self._running = folder, running
        self.at_first = self.why(Why.NO_BROKERS)
        creates_none = {"autoCreateTopicEnable": "false", "timerWheelEnable": "true"}  # deleteTopic needs the latter
        east = {"rocketmq.zone": "east"}
        self.broker = Broker(
            folder / "a", product.remoting, name="why-a", cluster="c-a", properties=creates_none, system_properties=east
        )
        self.ending = Broker(folder / "b", product.remoting, name="why-b", cluster="c-b", properties=_TIMEOUT)
        running.callback(self.ending.close)
        running.enter_context(self.broker)

    @cached_property
    def strict(self) -> SecondServer:
        """A second server that accepts no brokers of this machine, and soon is stale."""
        limits: dict[str, Any] = {"admin__broker_networks": "10.0.0.0/8", "snapshot__stale_after_ms": "2000"}
        return self._running.enter_context(
            SecondServer(self._folder / "strict", self.product, "strict", **limits, **_GUARD)
        )

    @cached_property
    def lone(self) -> SecondServer:
        """A third server, which a test kills."""
        return self._running.enter_context(SecondServer(self._folder / "lone", self.product, "lone", **_GUARD))

    @cached_property
    def slave(self) -> Broker:
        name_servers = f"{self.lone.remoting};{self.strict.remoting}"
        slave = Broker(self._folder / "s", name_servers, name="why-b", cluster="c-b", broker_id=1, properties=_TIMEOUT)
        self._running.callback(slave.close)
        return slave

    @cached_property
    def history(self) -> Process:
        """The process that writes the history once; all answers about the past need it."""
        conf = str(self.product.settings.data.run_dir / "effective.toml")
        command = [sys.executable, "-m", "namesrv_stream", "history-job", "--once", "--conf", conf]
        process = Process("history-job", command, self._folder / "history-job.log", cwd=REPOSITORY)
        self._running.enter_context(process)
        return process

    @property
    def installation(self) -> tuple[str, str]:
        """The flag with which commands find the installation."""
        return "--data-dir", str(self.product.data_dir)

    def topic(self, broker: Broker, topic: str, *arguments: str) -> str:
        """Create a topic with 4 queues, and wait until the tables have it."""
        create = ("updateTopic", "-n", self.product.remoting, "-b", broker.addr, "-t", topic, "-r", "4", "-w", "4")
        self.mqadmin.run(*create, *arguments)
        self.product.wait_change(kind="queue_data", topic=topic, gone=False)
        return topic

    def command(self, *arguments: str) -> str:
        """Run a command for the installation; it must succeed."""
        ran = run_command(*arguments, *self.installation)
        assert ran.code == 0, ran
        return ran.out

    def why(self, cause: Why) -> Answer:
        """Ask the question of a cause with the command, as a user does."""
        scenario = SCENARIOS[cause]
        return self.ask(*scenario.ask.split(), at=scenario.at)

    def ask(self, *arguments: str, at: str = "first") -> Answer:
        """Ask ``why``, and check the exit code."""
        urls = {"first": self.product.http, "strict": "" if at == "first" else self.strict.http}
        http = ";".join(urls[server] for server in at.split(" and "))
        begun_s = time.monotonic()
        asked = run_command("why", *arguments, "--json", "--http", http)
        self.took_s.append(time.monotonic() - begun_s)
        assert '"failures": {}' in asked.out, asked
        answers: list[Answer] = json.loads(asked.out)["answers"]
        assert asked.code == (0 if all(map(is_usable, answers)) else 1), asked
        return answers[0]

    def expect(self, cause: Why, timeout_s: float = SETTLE_S) -> Answer:
        """Wait until the cause is the first one of the answer to its question, and check the finding."""
        found: list[Answer] = []

        def is_first() -> bool:
            found[:] = [self.why(cause)]
            first = found[0]["findings"][0]
            # The servers' memory may be ahead of the tables.
            return first["cause"] == cause and bool(first["evidence"]) >= bool(SCENARIOS[cause].row)

        wait_until(is_first, timeout_s, f"the cause {cause}", every_s=_ASK_EVERY_S)
        self.check(cause, found[0])
        return found[0]

    def check(self, cause: Why, answer: Answer) -> None:
        """Check the first cause of an answer: its text, its row in the tables, and since when it is true."""
        scenario, first = SCENARIOS[cause], answer["findings"][0]
        assert first["cause"] == cause
        assert scenario.says in first["text"]
        if scenario.row:
            newest = first["evidence"][0]
            (row,) = self.product.changes(**{name: newest[name] for name in ("partition", "offset", "seq")})
            assert {name: row[name] for name in scenario.row} == scenario.row
            assert newest["at_ms"] == row["at_ms"]
            assert first["since_ms"] <= answer["at_ms"]
        self.answers[cause] = answer

    def cures(self, cause: Why, number: int = 0, *ask: str, timeout_s: float = SETTLE_S) -> None:
        """Wait until the answer no longer has the cause, because the test has carried out a remedy.

        Args:
            cause: The cause.
            number: The number of the remedy in ``CATALOGUE``.
            ask: Another question than that of the scenario.
            timeout_s: Limit of the wait, in seconds.
        """

        def is_cured() -> bool:
            return cause not in causes(self.ask(*ask) if ask else self.why(cause))

        wait_until(is_cured, timeout_s, f"{cause} is cured: {SCENARIOS[cause].cures[number]}", every_s=_ASK_EVERY_S)
        self.cured.add((cause, number))

    def wait_history(self) -> None:
        """Wait until the history process has written its tables."""
        assert self.history.wait(HISTORY_S) == 0, self.history.log_text()

    def check_past(self) -> None:
        """Ask the questions of this test about the times of their answers: the tables alone have the same answers."""
        for cause, answer in self.answers.items():
            if not SCENARIOS[cause].is_past:
                continue
            self.wait_history()
            at = ("--at", str(answer["at_ms"]), "--json", *self.installation)
            asked = run_command("why", *SCENARIOS[cause].ask.split(), *at)
            (past,) = json.loads(asked.out)["answers"]
            assert causes(past)[0] == cause, asked
            assert past["findings"][0]["evidence"][:1] == answer["findings"][0]["evidence"][:1], asked

    @contextmanager
    def frozen(self, part: str) -> Iterator[None]:
        """Suspend a part of the product."""
        pid = self.product.pid(part)
        suspend(pid)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def a_site(mqadmin: Mqadmin, client: JavaClient, folder: Path) -> Iterator[Site]:
    """Start the installation and a broker, and run the history process once."""
    # A test suspends the server for longer than its parent process would wait.
    flags = {"name_server__order_message_enable": "true", "server__hang_timeout_ms": "0", **_GUARD}
    with Stack(folder / "data", **flags) as product, ExitStack() as running:
        product.wait_job()
        site = Site(product, mqadmin, client, folder, running)
        assert site.history.is_alive
        yield site


def causes(answer: Answer) -> list[str]:
    return [found["cause"] for found in answer["findings"]]


def is_usable(answer: Answer) -> bool:
    """Whether clients can use the route, new or old; the command then ends with exit code 0."""
    return causes(answer)[0] in (Why.NOTHING_WRONG, Why.CLIENT_CACHE)
