"""``why`` with a running product, real brokers and mqadmin: every cause, since when, the row behind it, and the cure.

why_scenarios.py has the table of all causes and remedies. Every test reproduces some of the causes and carries out
their remedies. At its end it asks the same questions about the past.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path

import pytest

from namesrv_stream.route.why.findings import CATALOGUE, Why
from namesrv_stream.settings import project_home
from tests.e2e.conftest import Measured
from tests.e2e.why_scenarios import SCENARIOS, SETTLE_S, Site, a_site, causes, is_usable
from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import Broker, is_listening
from tests.support.rocketmq_peers import Mqadmin

pytestmark = pytest.mark.timeout(600)
#: Longer than clients cache a route.
OLD_ROUTE_S = 45.0
_DELETE_TOPIC_IN_BROKER = 215
#: Cause → the test in which it occurs.
TEST_OF_CAUSE: dict[Why, str] = {}
#: Remedies that no test here carries out, as (cause, number), with the reason.
NOT_CARRIED_OUT = {
    (Why.ACCESS_DENIED, 0): "test_hostile_peers.py has peers within and outside the networks",
    (Why.ACCESS_DENIED, 1): "no test has a broker that signs",
    (Why.BROKER_REMOVED, 0): "the broker's only server is gone",
    (Why.BROKER_NEVER_REGISTERED, 0): "it is that of NO_BROKERS",
    (Why.CONTRADICTION, 0): "a broker that has been removed contradicts nothing: test_contradictions.py",
    (Why.NOTHING_WRONG, 0): "there is nothing to cure",
    (Why.ORDER_NAMES_GONE, 0): "the named broker does not exist",
    (Why.OTHER_CLUSTER, 1): "a cluster of its own for one command would take a minute",
    (Why.WRITE_PERM_WIPED, 0): "test_drain.py undoes drains",
}


@pytest.fixture(scope="module")
def started(mqadmin: Mqadmin, java_client: JavaClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with a_site(mqadmin, java_client, tmp_path_factory.mktemp("why")) as site:
        yield site


@pytest.fixture
def site(started: Site, measured: Measured) -> Iterator[Site]:
    """The installation. Every test restores its state; only the broker why-b may be down."""
    started.answers, started.cured, started.took_s = {}, set(), []
    yield started
    if started.took_s:
        measured(f"why: the slowest of {len(started.took_s)} answers took {max(started.took_s):.2f} s")


def reproduces(*shown: Why) -> Callable[[Callable[[Site], None]], Callable[[Site], None]]:
    """Mark a test that reproduces exactly these causes, and let it ask its questions again about the past."""

    def of_test(reproduction: Callable[[Site], None]) -> Callable[[Site], None]:
        TEST_OF_CAUSE.update(dict.fromkeys(shown, reproduction.__name__))

        @wraps(reproduction)
        def test(site: Site) -> None:
            reproduction(site)
            assert set(site.answers) == set(shown)
            assert site.cured == {pair for pair in _remedies() - NOT_CARRIED_OUT.keys() if pair[0] in shown}
            site.check_past()

        return test

    return of_test


def _remedies() -> set[tuple[Why, int]]:
    """All remedies, as (cause, number)."""
    return {(cause, number) for cause, entry in CATALOGUE.items() for number in range(len(entry.remedies))}


def test_every_remedy_is_carried_out_or_excepted_with_a_reason() -> None:
    described = {(cause, number): how for cause, each in SCENARIOS.items() for number, how in enumerate(each.cures)}
    assert described.keys() == _remedies()
    assert {remedy for remedy, how in described.items() if not how} == NOT_CARRIED_OUT.keys()


def test_every_cause_has_a_scenario() -> None:
    """The table has the causes and the order of docs/why.md, and every cause occurs in a test."""
    page = (project_home() / "docs" / "why.md").read_text(encoding="utf-8")
    listed = [name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert [*SCENARIOS] == [name for name in listed if name in set(Why)]
    assert set(SCENARIOS) == set(TEST_OF_CAUSE) == set(Why)


@reproduces(Why.NO_BROKERS)
def test_why_explains_a_missing_route_before_any_broker_is_started(site: Site) -> None:
    site.check(Why.NO_BROKERS, site.at_first)
    site.cures(Why.NO_BROKERS)  # the fixture has started a broker


@reproduces(
    *(Why.NEAR_MISS, Why.BROKER_NEVER_REGISTERED, Why.CLIENT_CACHE, Why.OTHER_CLUSTER, Why.HIDDEN_BY_ZONE),
    *(Why.ADDRESS_NOT_MAPPED, Why.NO_PERMISSION, Why.READ_ONLY, Why.WRITE_ONLY, Why.ORDER_NAMES_GONE),
    *(Why.TOPIC_DELETED, Why.WRITE_PERM_WIPED),
)
def test_why_explains_the_routes_of_a_running_broker(site: Site) -> None:
    addr, broker = site.product.remoting, site.broker
    create = ("updateTopic", "-n", addr, "-c", "c-a")
    for perm in "042":
        site.topic(broker, f"WhyPerm{perm}", "-p", perm)
    site.topic(broker, "WhyDeleted")
    site.mqadmin.run("updateOrderConf", "-n", addr, "-t", "WhyOrdered", "-m", "put", "-v", "why-a:4;why-gone:4")
    site.topic(broker, "WhyOrdered")
    site.topic(broker, "WhyOrders")
    for cause in (Why.CLIENT_CACHE, Why.NEAR_MISS, Why.BROKER_NEVER_REGISTERED, Why.OTHER_CLUSTER, Why.HIDDEN_BY_ZONE):
        site.expect(cause)
    assert is_usable(site.ask("WhyOrders", "--zone", "east", "--cluster", "c-a"))
    site.cures(Why.NEAR_MISS, 0, "WhyOrders")
    site.cures(Why.OTHER_CLUSTER, 0, "WhyOrders", "--cluster", "c-a")
    site.cures(Why.HIDDEN_BY_ZONE, 0, "WhyOrders", "--zone", "east")
    site.cures(Why.HIDDEN_BY_ZONE, 1, "WhyOrders")
    for cause in (Why.NO_PERMISSION, Why.READ_ONLY, Why.WRITE_ONLY, Why.ORDER_NAMES_GONE):
        site.expect(cause)
    for cause, topic in ((Why.NO_PERMISSION, "WhyPerm0"), (Why.READ_ONLY, "WhyPerm4"), (Why.WRITE_ONLY, "WhyPerm2")):
        site.mqadmin.run("updateTopicPerm", "-n", addr, "-t", topic, "-c", "c-a", "-p", "6")
        site.cures(cause)
    site.mqadmin.run("updateOrderConf", "-n", addr, "-t", "WhyOrdered", "-m", "put", "-v", "why-a:4")
    site.cures(Why.ORDER_NAMES_GONE, 1)
    _ask_in_a_view(site)
    site.mqadmin.run("deleteTopic", "-n", addr, "-c", "c-a", "-t", "WhyDeleted")
    site.expect(Why.TOPIC_DELETED)
    site.mqadmin.run(*create, "-t", "WhyDeleted")
    site.cures(Why.TOPIC_DELETED)
    site.wait_history()
    page = site.product.get(f"/why/topics/WhyDeleted?at={site.answers[Why.CLIENT_CACHE]['at_ms']}")
    assert is_usable(page)  # the topic as it was then
    # The deletion changed the broker's DataVersion. A registration after wipeWritePerm would restore the permission.
    site.broker.register()
    site.mqadmin.run("wipeWritePerm", "-n", addr, "-b", broker.name)
    site.expect(Why.WRITE_PERM_WIPED)
    assert causes(site.ask(broker.name, "--broker"))[0] == "write_perm_wiped"
    site.mqadmin.run("addWritePerm", "-n", addr, "-b", broker.name)
    wait_until(lambda: is_usable(site.ask("WhyOrders")), SETTLE_S, "it is restored", every_s=0.2)
    site.cures(Why.WRITE_PERM_WIPED, 1)
    site.cures(Why.CLIENT_CACHE)


def _ask_in_a_view(site: Site) -> None:
    document = site.product.data_dir / "far.json"
    document.write_text('{"networks": ["198.51.100.0/24"], "unmapped": "omit"}')
    site.command("view", "set", "far", str(document))
    site.expect(Why.ADDRESS_NOT_MAPPED)
    document.write_text('{"networks": ["198.51.100.0/24"], "mappings": [{"to": "{host}:{port}"}]}')
    site.command("view", "set", "far", str(document))
    site.cures(Why.ADDRESS_NOT_MAPPED)
    assert is_usable(site.ask("WhyOrders", "--client", "192.0.2.7"))
    site.command("view", "remove", "far")


@reproduces(
    *(Why.AUTO_CREATION_OFF, Why.NEVER_REGISTERED, Why.HEARTBEAT_LATE, Why.HELD_BY_GUARD, Why.ONLY_SLAVES),
    *(Why.BROKER_REMOVED, Why.ACCESS_DENIED, Why.BROKER_EXPIRED, Why.BROKER_DISCONNECTED, Why.TOPIC_LEFT_OUT),
    *(Why.BROKER_UNREGISTERED, Why.DEFAULT_TOPIC_GONE, Why.NOTHING_WRONG),
)
def test_why_explains_how_brokers_hang_fail_and_stop(site: Site) -> None:
    """A master and its slave hang, return, lose their server, are killed, lose their topics, and are stopped."""
    site.expect(Why.AUTO_CREATION_OFF)
    site.topic(site.broker, "WhyCreated")
    site.cures(Why.AUTO_CREATION_OFF, 0, "WhyCreated")
    master, slave = site.ending, site.slave
    master.process.start()
    slave.process.start()
    master.wait_registered()
    slave.wait_registered()
    site.topic(master, "WhyEnds")
    site.product.wait_change(kind="broker_live", broker_addr=slave.addr, gone=False)
    site.expect(Why.NEVER_REGISTERED)
    _create_by_sending(site)
    _hang_together(site, master, slave)
    _lose_the_only_server(site, slave)
    _return(site, master)
    site.cures(Why.ONLY_SLAVES)
    site.cures(Why.HEARTBEAT_LATE)
    master.freeze()
    site.expect(Why.BROKER_EXPIRED)
    assert causes(site.ask("why-b"))[0] == "broker_expired"
    _return(site, master)
    site.cures(Why.BROKER_EXPIRED)
    master.kill()
    site.expect(Why.BROKER_DISCONNECTED)
    shutil.rmtree(master.process.log_path.parent / "store" / "config")
    master.start()
    site.expect(Why.TOPIC_LEFT_OUT)
    site.cures(Why.BROKER_DISCONNECTED)
    site.topic(master, "WhyEnds")
    site.cures(Why.TOPIC_LEFT_OUT)
    master.begin_stop()
    site.expect(Why.BROKER_UNREGISTERED)
    site.expect(Why.DEFAULT_TOPIC_GONE)
    site.topic(site.broker, "WhyCreatedLater")
    site.cures(Why.DEFAULT_TOPIC_GONE, 0, "WhyCreatedLater")
    _start_again(site, master)
    # By now, the route of the other broker, which registers its own name as a topic, is older than any client's route.
    site.expect(Why.NOTHING_WRONG, OLD_ROUTE_S)
    assert causes(site.ask("why-a", "--topic")) == ["nothing_wrong"]


def _create_by_sending(site: Site) -> None:
    """Create topics by a command and by a message to a broker that creates topics."""
    site.topic(site.ending, "WhyNew")
    site.cures(Why.NEVER_REGISTERED, 0, "WhyNew")
    site.client.produce(site.product.remoting, "WhySent", ["x"])
    site.cures(Why.NEVER_REGISTERED, 1, "WhySent")
    site.cures(Why.AUTO_CREATION_OFF, 1, "WhySent")


def _start_again(site: Site, stopping: Broker) -> None:
    """Wait for the end of a broker that stops, and start it again; it creates topics as before."""
    stopping.stop()
    stopping.start()
    site.cures(Why.BROKER_UNREGISTERED)
    site.client.produce(site.product.remoting, "WhySentLater", ["x"])
    site.cures(Why.DEFAULT_TOPIC_GONE, 1, "WhySentLater")


def _hang_together(site: Site, master: Broker, slave: Broker) -> None:
    """Suspend both until the guard holds them, release them, let both return, and suspend the master alone."""
    master.freeze()
    slave.freeze()
    site.expect(Why.HEARTBEAT_LATE)
    answer = site.expect(Why.HELD_BY_GUARD)
    assert "2 of 2 brokers of c-b" in answer["findings"][0]["evidence"][0]["detail"]
    site.command("guard", "release", "c-b")
    site.cures(Why.HELD_BY_GUARD)
    _return(site, master)
    slave.thaw()
    wait_until(
        lambda: any(broker["broker_addr"] == slave.addr for broker in site.product.get("/brokers")),
        SETTLE_S,
        "the slave is back",
    )
    master.freeze()
    site.expect(Why.ONLY_SLAVES)


def _lose_the_only_server(site: Site, slave: Broker) -> None:
    """Kill the slave's server, so that only one is left, which refuses it."""
    site.lone.kill()
    # A server must be silent before it can be lost.
    site.command("config", "set", "server_silent_ms", "2500")
    site.command("config", "set", "server_lost_ms", "3000")
    site.expect(Why.BROKER_REMOVED)
    site.expect(Why.ACCESS_DENIED)
    slave.kill()
    site.command("config", "set", "server_lost_ms", "600000")
    site.command("config", "set", "server_silent_ms", "15000")


def _return(site: Site, broker: Broker) -> None:
    """Let a hanging broker register again."""
    broker.thaw()
    broker.register()
    wait_until(lambda: site.ask("WhyEnds")["is_routed"], SETTLE_S, "the broker is back", every_s=0.2)


@reproduces(Why.CONTRADICTION)
def test_why_explains_a_registration_that_contradicts_its_data_version(site: Site) -> None:
    """A broker returns with other queues of two topics and its old DataVersion, while the server is suspended."""
    changed, topic = site.topic(site.broker, "WhyChanged"), site.topic(site.broker, "WhyContradiction")
    _wait_full(site, topic)  # ``register`` would increment a DataVersion that the broker does not store
    blind_s = 2 * site.product.settings.liveness.max_gap_ms / 1000  # after a shorter pause the broker would be removed
    with site.frozen("serve"):
        frozen_s = time.monotonic()
        site.broker.kill()
        _edit_queues(site.broker, topic, 6)
        _edit_queues(site.broker, changed, 6)
        site.broker.process.start()
        wait_until(
            lambda: time.monotonic() - frozen_s > blind_s and is_listening(site.broker.addr),
            SETTLE_S,
            "the broker runs again, and the server is blind",
        )
    site.expect(Why.CONTRADICTION)
    assert _queues(site, topic) == [4]
    (shown,) = [b for b in site.product.get("/brokers") if b["contradictions"]]
    assert (shown["broker_name"], shown["contradictions"]) == ("why-a", [changed, topic])
    (found,) = [each for each in json.loads(site.command("doctor", "--json")) if each["area"] == "DataVersion"]
    assert topic in found["text"], found

    change = ("updateTopic", "-n", site.product.remoting, "-b", site.broker.addr, "-t", changed, "-r", "8", "-w", "8")
    site.mqadmin.run(*change)
    site.cures(Why.CONTRADICTION, 1, changed)
    assert causes(site.ask(topic))[0] == "contradiction"  # the new DataVersion is only for the changed topic
    site.command("config", "set", "take_over_contradictions", "true")
    site.product.wait_change(kind="queue_data", topic=topic, cause="contradiction")
    wait_until(lambda: _queues(site, topic) == [6], SETTLE_S, "the server has the new queues")
    assert causes(site.ask(topic)) == ["client_cache"]
    site.cures(Why.CONTRADICTION, 2)
    site.command("config", "set", "take_over_contradictions", "false")


def _edit_queues(stopped: Broker, topic: str, queues: int) -> None:
    """Change a broker's topic without a new DataVersion."""
    topics = Path(stopped.process.log_path.parent, "store", "config", "topics.json")
    content = json.loads(topics.read_text())
    content["topicConfigTable"][topic] |= {"readQueueNums": queues, "writeQueueNums": queues}
    topics.write_text(json.dumps(content))


def _queues(site: Site, topic: str) -> list[int]:
    return [queue["readQueueNums"] for queue in site.product.get(f"/routes/{topic}")["queueDatas"]]


def _wait_full(site: Site, topic: str) -> None:
    """Wait until the broker has registered all of its topics, as it does every 10 s."""
    wait_until(
        lambda: any(f'"{topic}"' in row["value"] for row in site.product.changes(kind="registration", gone=False)),
        SETTLE_S,
        "the broker's full registration",
    )


@reproduces(Why.SERVER_STALE, Why.OTHER_SERVER)
def test_why_explains_a_stale_server_and_a_route_at_another_server(site: Site) -> None:
    assert site.strict.process.is_alive
    with site.frozen("job"):
        create = ("updateTopic", "-n", site.product.remoting, "-b", site.broker.addr, "-t", "WhySkewed")
        site.mqadmin.run(*create)
        wait_until(lambda: site.ask("WhySkewed")["is_routed"], SETTLE_S, "the broker's server has it", every_s=0.2)
        answer = site.expect(Why.SERVER_STALE)
        assert answer["findings"][0]["since_ms"] < answer["at_ms"]
        both = site.expect(Why.OTHER_SERVER)
        assert causes(both)[:2] == ["other_server", "server_stale"]
        assert site.product.http in both["findings"][0]["text"]
    site.cures(Why.SERVER_STALE)
    site.cures(Why.OTHER_SERVER)


@reproduces(Why.SERVER_BLIND)
def test_why_explains_a_blind_server(site: Site) -> None:
    with site.frozen("kafka"):
        answer = site.expect(Why.SERVER_BLIND)
    assert answer["findings"][0]["since_ms"] < answer["at_ms"]
    site.cures(Why.SERVER_BLIND)


def test_orphans_lists_unregistered_topics_and_topics_without_queries(site: Site) -> None:
    """A topic that was deleted only at its broker keeps its route; other orphans are topics without queries."""
    name = site.broker.name
    deleted, asked = site.topic(site.broker, "WhyOrphan"), site.topic(site.broker, "WhyAsked")
    site.broker.register()
    _wait_full(site, asked)
    with RemotingClient(site.broker.addr) as client:
        assert client.ask(_DELETE_TOPIC_IN_BROKER, {"topic": deleted}).code == 0
    site.mqadmin.run("topicRoute", "-n", site.product.remoting, "-t", asked)
    site.broker.register()
    wait_until(
        lambda: ("not_registered", deleted, name) in _orphans(site),
        SETTLE_S,
        "the broker has registered without the topic",
    )
    assert ("topic_not_asked", asked, "") not in _orphans(site)
    assert ("topic_not_asked", deleted, "") in _orphans(site)
    assert ("broker_not_asked", "", name) not in _orphans(site)


def _orphans(site: Site) -> set[tuple[str, str, str]]:
    found = json.loads(site.command("orphans", "--json"))["orphans"]
    return {(each["kind"], each["topic"], each["broker_name"]) for each in found}
