"""``why`` with a running product, real brokers and mqadmin: every cause, since when, and the row behind it."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import run_command
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import Broker, is_listening
from tests.support.rocketmq_peers import Mqadmin
from tests.support.scripted_brokers import ScriptedBrokers
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

Answer = dict[str, Any]
SETTLE_S = 60.0
#: Longer than clients keep a route.
OLD_ROUTE_S = 45.0
CLUSTER = "c-why"
_DELETE_TOPIC_IN_BROKER = 215
#: Brokers tell their timeout only in acting-master mode.
TIMEOUT = {
    "enableSlaveActingMaster": "true",
    "brokerNotActiveTimeoutMillis": "6000",
    "brokerHeartbeatInterval": "1000",
}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A product without other brokers, so that the tests decide which topics have a route."""
    with Stack(tmp_path_factory.mktemp("why") / "data", name_server__order_message_enable="true") as running:
        running.wait_job()
        yield running


@pytest.fixture(scope="module")
def strict_server(product: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondServer]:
    """A second server that accepts no brokers of this machine, and soon counts as stale."""
    with SecondServer(
        tmp_path_factory.mktemp("strict") / "data",
        product,
        admin__broker_networks="10.0.0.0/8",
        snapshot__stale_after_ms="2000",
    ) as running:
        yield running


@pytest.fixture(scope="module")
def answer_at_first(product: Stack) -> Answer:
    """The answer before any broker has registered."""
    return why(product.http, "Orders")


@pytest.fixture(scope="module")
def broker(product: Stack, answer_at_first: Answer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A master in the zone "east" that creates no topics automatically."""
    with Broker(
        tmp_path_factory.mktemp("why-a"),
        product.remoting,
        name="why-a",
        cluster=CLUSTER,
        properties={"autoCreateTopicEnable": "false", "timerWheelEnable": "true"},  # deleteTopic needs the latter
        system_properties={"rocketmq.zone": "east"},
    ) as running:
        yield running


def why(url: str, *arguments: str) -> Answer:
    """Ask with the command, as a user does."""
    asked = run_command("why", *arguments, "--json", "--http", url)
    assert '"failures": {}' in asked.out, asked
    answer: Answer = json.loads(asked.out)["answers"][0]
    is_usable = answer["findings"][0]["cause"] in ("nothing_wrong", "client_cache")
    assert asked.code == (0 if is_usable else 1), asked.err
    return answer


def causes(answer: Answer) -> list[str]:
    return [found["cause"] for found in answer["findings"]]


def wait_cause(cause: str, url: str, *arguments: str, timeout_s: float = SETTLE_S) -> Answer:
    """Wait until this is the first cause."""
    answer: list[Answer] = []

    def has_cause() -> bool:
        answer[:] = [why(url, *arguments)]
        return causes(answer[0])[0] == cause

    wait_until(has_cause, timeout_s, f"the cause {cause}")
    return answer[0]


def assert_row(product: Stack, answer: Answer, **columns: object) -> None:
    """The newest evidence is a row of the tables with these columns, and the cause is true since that row."""
    found = answer["findings"][0]
    newest = found["evidence"][0]
    (row,) = product.changes(**{name: newest[name] for name in ("partition", "offset", "seq")})
    assert {name: row[name] for name in columns} == columns
    assert found["since_ms"] == newest["at_ms"] == row["at_ms"]


def topic_on(mqadmin: Mqadmin, product: Stack, broker: Broker, topic: str, *arguments: str) -> str:
    mqadmin.run("updateTopic", "-n", product.remoting, "-b", broker.addr, "-t", topic, "-r", "4", "-w", "4", *arguments)
    product.wait_change(kind="queue_data", topic=topic, gone=False)
    return topic


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_no_brokers(answer_at_first: Answer) -> None:
    assert causes(answer_at_first) == ["no_brokers"]


def test_names_that_are_not_known(product: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    topic_on(mqadmin, product, broker, "WhyOrders")
    near = why(product.http, "whyorder")
    assert causes(near)[0] == "near_miss"
    assert "WhyOrders" in near["findings"][0]["text"]
    assert causes(why(product.http, "why-x", "--broker")) == ["near_miss", "broker_never_registered"]


def test_new_route_is_told_with_the_age_of_clients_routes(product: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    answer = why(product.http, topic_on(mqadmin, product, broker, "WhyNew"))
    assert causes(answer) == ["client_cache"]
    assert_row(product, answer, kind="queue_data", topic="WhyNew", cause="registered")


def test_deleted_topic(product: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    topic_on(mqadmin, product, broker, "WhyDeleted")
    mqadmin.run("deleteTopic", "-n", product.remoting, "-c", CLUSTER, "-t", "WhyDeleted")
    product.wait_change(kind="queue_data", topic="WhyDeleted", cause="topic_deleted")
    answer = wait_cause("topic_deleted", product.http, "WhyDeleted")
    assert "by 127.0.0.1 at " in answer["findings"][0]["text"]
    assert_row(product, answer, topic="WhyDeleted", cause="topic_deleted", gone=True)


@pytest.mark.parametrize(("perm", "cause"), [("0", "no_permission"), ("4", "read_only"), ("2", "write_only")])
def test_permission_of_the_topic(product: Stack, broker: Broker, mqadmin: Mqadmin, perm: str, cause: str) -> None:
    topic = topic_on(mqadmin, product, broker, f"WhyPerm{perm}", "-p", perm)
    answer = why(product.http, topic)
    assert causes(answer)[0] == cause
    assert_row(product, answer, topic=topic, perm=int(perm))


def test_wiped_write_permission(product: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    topic = topic_on(mqadmin, product, broker, "WhyWiped")
    mqadmin.run("wipeWritePerm", "-n", product.remoting, "-b", broker.name)
    product.wait_change(kind="queue_data", topic=topic, cause="write_perm_wiped")
    for arguments in ((topic,), (broker.name, "--broker")):
        answer = wait_cause("write_perm_wiped", product.http, *arguments)
        assert "by 127.0.0.1" in answer["findings"][0]["text"]
    assert_row(product, why(product.http, topic), topic=topic, cause="write_perm_wiped")
    mqadmin.run("addWritePerm", "-n", product.remoting, "-b", broker.name)
    wait_until(lambda: "write_perm_wiped" not in causes(why(product.http, topic)), SETTLE_S, "it is restored")


def test_other_cluster_and_other_zone(product: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    topic = topic_on(mqadmin, product, broker, "WhySeen")
    assert causes(why(product.http, topic, "--cluster", "c9"))[0] == "other_cluster"
    assert causes(why(product.http, topic, "--zone", "west"))[0] == "hidden_by_zone"
    assert causes(why(product.http, topic, "--zone", "east", "--cluster", CLUSTER)) == ["client_cache"]


def test_order_configuration_of_a_broker_that_is_gone(product: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    topic = topic_on(mqadmin, product, broker, "WhyOrdered")
    order = ("updateOrderConf", "-n", product.remoting, "-t", topic, "-m", "put", "-v")
    mqadmin.run(*order, "why-a:4;why-gone:4")
    product.wait_change(kind="kv", key=topic)
    answer = wait_cause("order_names_gone", product.http, topic)
    assert answer["findings"][0]["text"].endswith("why-gone")
    assert_row(product, answer, kind="kv", key=topic)


def test_guard(product: Stack, broker: Broker) -> None:
    with ScriptedBrokers("c-held", 6, [product.remoting]) as brokers:
        brokers.register()
        product.wait_change(kind="broker_live", broker_name="c-held-5")
    answer = wait_cause("held_by_guard", product.http, "c-held-0")
    assert answer["subject"] == "broker"
    assert answer["findings"][0]["since_ms"]


def test_ends_of_a_broker(product: Stack, broker: Broker, mqadmin: Mqadmin, tmp_path: Path) -> None:
    """A broker that creates topics automatically hangs, returns, is killed, loses its topics, and is stopped.

    The other broker's route is old by then.
    """
    assert causes(why(product.http, "Payments")) == ["auto_creation_off"]
    with Broker(tmp_path, product.remoting, name="why-b", cluster="c-ends", properties=TIMEOUT) as ending:
        topic = topic_on(mqadmin, product, ending, "WhyEnds")
        product.wait_change(kind="queue_data", topic="TBW102", gone=False)
        assert causes(why(product.http, "Payments")) == ["never_registered"]
        ending.freeze()
        wait_cause("heartbeat_late", product.http, "why-b")
        answer = wait_cause("broker_expired", product.http, topic)
        assert_row(product, answer, topic=topic, broker_name="why-b", cause="expired")
        assert_row(product, why(product.http, "why-b"), kind="broker_live", cause="expired")
        ending.thaw()
        wait_until(lambda: why(product.http, topic)["is_routed"], SETTLE_S, "the broker is back")
        with Broker(tmp_path / "slave", product.remoting, name="why-b", cluster="c-ends", broker_id=1) as slave:
            product.wait_change(kind="broker_live", broker_addr=slave.addr, gone=False)
            ending.kill()
            answer = wait_cause("only_slaves", product.http, topic)
            assert_row(product, answer, kind="broker_live", broker_addr=ending.addr, cause="disconnected")
        answer = wait_cause("broker_disconnected", product.http, topic)
        assert_row(product, answer, topic=topic, cause="disconnected")
        shutil.rmtree(tmp_path / "store" / "config")
        ending.start()
        answer = wait_cause("topic_left_out", product.http, topic)
        assert "why-b" in answer["findings"][0]["text"]
        ending.begin_stop()
        answer = wait_cause("broker_unregistered", product.http, "why-b")
        assert_row(product, answer, broker_name="why-b", cause="unregistered")
        answer = wait_cause("default_topic_gone", product.http, "Payments")
        assert_row(product, answer, topic="TBW102", cause="unregistered")
    # Meanwhile the route of the other broker, which registers its own name as a topic, is older than any client's.
    for subject in ("--topic", "--broker"):
        answer = wait_cause("nothing_wrong", product.http, broker.name, subject, timeout_s=OLD_ROUTE_S)
        assert_row(product, answer, broker_name=broker.name, gone=False)


def test_contradiction(product: Stack, broker: Broker, mqadmin: Mqadmin, tmp_path: Path) -> None:
    """A broker returns with other queues and its old DataVersion, while the server is suspended."""
    creates_none = {"autoCreateTopicEnable": "false"}
    addr, cluster = product.remoting, "c-contradiction"
    with Broker(tmp_path, addr, name="why-c", cluster=cluster, properties=creates_none) as restarted:
        topic = topic_on(mqadmin, product, restarted, "WhyContradiction")
        wait_until(lambda: _is_registered_in_full(product, topic), SETTLE_S, "the broker's next full registration")
        blind_s = 2 * product.settings.liveness.max_gap_ms / 1000  # after a shorter pause the broker counts as gone
        with frozen(product.pid("serve")):
            frozen_s = time.monotonic()
            restarted.kill()
            _edit_queues(tmp_path / "store" / "config" / "topics.json", topic, 6)
            restarted.process.start()
            wait_until(
                lambda: time.monotonic() - frozen_s > blind_s and is_listening(restarted.addr),
                SETTLE_S,
                "the broker runs again, and the server is blind",
            )
        product.wait_change(SETTLE_S, broker_name="why-c", cause="contradiction")
        answer = wait_cause("contradiction", product.http, topic)
        assert_row(product, answer, kind="broker_live", broker_addr=restarted.addr, cause="contradiction")
        assert _queues(product, topic) == [4]
        (shown,) = [b for b in product.get("/brokers") if b["contradictions"]]
        assert (shown["broker_name"], shown["contradictions"]) == ("why-c", [topic])
        installation = ("--data-dir", str(product.data_dir))
        checked = run_command("doctor", "--json", *installation)
        (found,) = [each for each in json.loads(checked.out) if each["area"] == "DataVersion"]
        assert topic in found["text"], found

        assert run_command("config", "set", "take_over_contradictions", "true", *installation).code == 0
        product.wait_change(kind="queue_data", topic=topic, cause="contradiction")
        wait_until(lambda: _queues(product, topic) == [6], SETTLE_S, "the server has the new queues")
        assert causes(why(product.http, topic)) == ["client_cache"]
        assert run_command("config", "set", "take_over_contradictions", "false", *installation).code == 0


def test_orphans(product: Stack, broker: Broker, mqadmin: Mqadmin) -> None:
    """A topic that is deleted at its broker only keeps its route; queries decide about the others."""
    deleted = topic_on(mqadmin, product, broker, "WhyOrphan")
    asked = topic_on(mqadmin, product, broker, "WhyAsked")
    wait_until(lambda: _is_registered_in_full(product, asked), SETTLE_S, "the broker's next full registration")
    with RemotingClient(broker.addr) as client:
        assert client.ask(_DELETE_TOPIC_IN_BROKER, {"topic": deleted}).code == 0
    mqadmin.run("topicRoute", "-n", product.remoting, "-t", asked)

    def is_orphan() -> bool:
        return ("not_registered", deleted, broker.name) in _orphans(product)

    wait_until(is_orphan, SETTLE_S, "the broker has registered without the topic")
    assert ("topic_not_asked", asked, "") not in _orphans(product)
    assert ("topic_not_asked", deleted, "") in _orphans(product)
    assert ("broker_not_asked", "", broker.name) not in _orphans(product)


def _orphans(product: Stack) -> set[tuple[str, str, str]]:
    ran = run_command("orphans", "--json", "--http", product.http)
    assert ran.code == 0, ran.err
    return {(each["kind"], each["topic"], each["broker_name"]) for each in json.loads(ran.out)["orphans"]}


def _is_registered_in_full(product: Stack, topic: str) -> bool:
    return any(f'"{topic}"' in row["value"] for row in product.changes(kind="registration", gone=False))


def _edit_queues(topics: Path, topic: str, queues: int) -> None:
    """Change a stopped broker's topic without a new DataVersion."""
    content = json.loads(topics.read_text())
    content["topicConfigTable"][topic] |= {"readQueueNums": queues, "writeQueueNums": queues}
    topics.write_text(json.dumps(content))


def _queues(product: Stack, topic: str) -> list[int]:
    return [queue["readQueueNums"] for queue in product.get(f"/routes/{topic}")["queueDatas"]]


def test_refused_broker(product: Stack, strict_server: SecondServer, broker: Broker, tmp_path: Path) -> None:
    refused = Broker(tmp_path, strict_server.remoting, name="why-refused", cluster=CLUSTER)
    try:
        refused.process.start()
        answer = wait_cause("access_denied", strict_server.http, "why-refused", "--broker")
    finally:
        refused.close()
    assert "REGISTER_BROKER from 127.0.0.1" in answer["findings"][0]["text"]
    assert answer["findings"][0]["since_ms"]
    assert causes(why(product.http, "why-refused", "--broker")) == ["broker_never_registered"]


def test_stale_server_and_route_at_another_server(
    product: Stack, strict_server: SecondServer, broker: Broker, mqadmin: Mqadmin
) -> None:
    with frozen(product.pid("job")):
        create = ("updateTopic", "-n", product.remoting, "-b", broker.addr, "-t", "WhySkewed")
        mqadmin.run(*create)
        wait_until(lambda: why(product.http, "WhySkewed")["is_routed"], SETTLE_S, "the broker's server has the topic")
        answer = wait_cause("server_stale", strict_server.http, "WhySkewed")
        assert answer["findings"][0]["since_ms"] < answer["at_ms"]
        both = why(f"{strict_server.http};{product.http}", "WhySkewed")
        assert causes(both)[:2] == ["other_server", "server_stale"]
        assert product.http in both["findings"][0]["text"]


def test_blind_server(product: Stack, broker: Broker) -> None:
    with frozen(product.pid("kafka")):
        answer = wait_cause("server_blind", product.http, "Payments")
    assert answer["findings"][0]["since_ms"] < answer["at_ms"]
    wait_until(lambda: "server_blind" not in causes(why(product.http, "Payments")), SETTLE_S, "Kafka is back")
