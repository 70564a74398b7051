"""The client and its commands with real servers, Java and namesrv-stream, which are killed, frozen and restarted."""

import asyncio
import contextlib
import io
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

from namesrv_stream.cli import main
from namesrv_stream.client import (
    AclCredentials,
    Client,
    ClientOptions,
    MessageQueue,
    NameServers,
    TopicNotExist,
    TopicRoute,
    UnexpectedAnswer,
    delete_kv,
    delete_topic,
    import_kv,
    kv_table,
    kv_value,
    name_server_config,
    put_kv,
    topic_route,
    update_name_server_config,
    wipe_write_perm,
    writable_queues,
)
from namesrv_stream.client.admin import Imported
from namesrv_stream.errors import QueryNotFound
from namesrv_stream.processes import read_run_file
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import RequestCode, ResponseCode
from namesrv_stream.settings import Settings
from tests.integration.test_server import Serve
from tests.support.kafka import REPOSITORY, settings_for
from tests.support.name_server import MASTER, SLAVE, a_body, a_registration_request, a_topic
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import JavaNameServer
from tests.support.rocketmq_peers import Mqadmin, RocketmqPeers

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

MASTER_B = "10.0.1.1:10911"
OPERATOR = AclCredentials("operator", "12345678é")
QUICK = ClientOptions(request_timeout_ms=5_000, poll_name_server_interval_ms=50)
Cli = Callable[..., str]


class Server(Protocol):
    """A name server, as these tests use it."""

    @property
    def addr(self) -> str: ...


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaNameServer]:
    work_dir = tmp_path_factory.mktemp("java")
    with JavaNameServer(work_dir, properties={"orderMessageEnable": "true"}) as server:
        yield server


@pytest.fixture(scope="module")
def ours(kafka_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    work_dir = tmp_path_factory.mktemp("ours")
    accounts = work_dir / "accounts"
    accounts.write_text(f"{OPERATOR.access_key}={OPERATOR.secret_key}\n")
    accounts.chmod(0o600)
    settings = settings_for(
        work_dir / "data",
        kafka__bootstrap_servers=f"127.0.0.1:{kafka_settings.embedded_kafka.listen_port}",
        kafka__broker_events_topic="client-events",
        admin__trusted_networks="10.99.0.0/16",  # not even this machine: operators must sign
        admin__accounts_file=str(accounts),
    )
    server = Serve(settings, work_dir)
    server.start()
    yield server
    server.process.close()


@pytest.fixture(params=["java", "ours"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each server with the same brokers, which stay while their connections are open."""
    running: Server = request.getfixturevalue(request.param)
    with registered(running):
        yield running


@pytest.fixture
def second(tmp_path: Path) -> Iterator[JavaNameServer]:
    """A server that a test may kill."""
    with JavaNameServer(tmp_path / "second") as running:
        yield running


@pytest.fixture(scope="module")
def mqadmin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mqadmin]:
    with RocketmqPeers(tmp_path_factory.mktemp("peers")) as peers:
        yield Mqadmin(peers)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs a command and returns its output."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["namesrv-stream", *arguments])
        code = main()
        streams = capsys.readouterr()
        assert code == 0, streams.err
        return streams.out

    return run


@contextlib.contextmanager
def registered(*servers: Server) -> Iterator[None]:
    """Register ``broker-a`` with a slave in c0 and ``broker-b`` in c1; both have TopicTest and another topic."""
    topics = {"TopicTest": a_topic(queues=4), "only-a": a_topic(queues=2)}
    requests = [
        a_registration_request(body=a_body(topics)),
        a_registration_request(SLAVE, 1, body=a_body(topics)),
        a_registration_request(
            MASTER_B, 0, body=a_body({"TopicTest": a_topic(queues=2), "read-only": a_topic(perm=4)}),
            brokerName="broker-b", clusterName="c1",
        ),
    ]  # fmt: skip
    with contextlib.ExitStack() as connections:
        peers = []
        for server in servers:
            for request in requests:  # a connection each: one stands for one broker
                peer = connections.enter_context(RemotingClient(server.addr, 60))
                assert peer.ask(request.code, request.ext_fields, request.body or b"").code == 0
                peers.append((peer, request))
        yield
        for peer, request in peers:  # no job runs here that would remove a broker whose connection is closed
            with contextlib.suppress(ConnectionError):  # a test has killed the server
                assert peer.ask(RequestCode.UNREGISTER_BROKER, request.ext_fields).code == 0
    for server in servers:
        # Java answers an unregistration before it acts on it.
        wait_until(partial(is_empty, server.addr), 30, "the brokers are removed")


def is_empty(addr: str) -> bool:
    """Whether a name server has no broker or is down."""
    try:
        with RemotingClient(addr) as peer:
            return b"broker-" not in peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    except OSError:
        return True


async def reach(client: Client, topic: str, is_so: Callable[[TopicRoute], bool], what: str) -> TopicRoute:
    """Wait until the client's route satisfies a condition."""
    for _ in range(3_000):
        route = await client.route(topic)
        if is_so(route):
            return route
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within 30 s: {what}; last: {route}")


async def test_client_returns_routes_queues_topics_and_clusters(server: Server) -> None:
    async with Client(server.addr) as client:
        route = await client.route("TopicTest")
        chosen = [await client.select_queue("TopicTest") for _ in range(12)]
        assert await client.readable_queues("read-only") != ()
        with pytest.raises(TopicNotExist):
            await client.select_queue("none")
        assert {"TopicTest", "only-a", "read-only"} <= set(await client.topic_list())
        assert "read-only" not in await client.topic_list("c0")
        assert (await client.cluster_info()).brokers["broker-a"].broker_addrs == {0: MASTER, 1: SLAVE}
    assert (route.data.order_topic_conf or "", route.last_error) == ("", None)
    assert sorted(chosen[:6]) == sorted(route.writable_queues)
    assert chosen[6:] == chosen[:6]
    assert MessageQueue("TopicTest", "broker-b", 1, MASTER_B) in chosen


async def test_ten_thousand_concurrent_calls_share_one_connection(server: Server) -> None:
    servers = NameServers([server.addr])
    routes = await asyncio.gather(*(topic_route(servers, "TopicTest", 60_000) for _ in range(10_000)))
    assert {len(route.queue_datas) for route in routes} == {2}
    before = open_sockets()
    await servers.close()
    assert open_sockets() == before - 1


def open_sockets() -> int:
    count = 0
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += os.readlink(file).startswith("socket:")
    return count


async def test_client_uses_the_other_server_at_once_when_one_is_killed(ours: Serve, second: JavaNameServer) -> None:
    with registered(ours, second):
        async with Client(f"{second.addr};{ours.addr}", options=QUICK) as client:
            while client.name_servers.chosen != second.addr:
                await client.name_servers.replace_addrs([second.addr])
            await client.name_servers.replace_addrs([second.addr, ours.addr])
            before = await client.route("TopicTest")
            second.kill()
            assert "TopicTest" in await client.topic_list()
            assert client.name_servers.chosen == ours.addr
            after = await reach(client, "TopicTest", lambda route: route.data is not before.data, "a refresh")
            assert after.last_error is None
            assert after.writable_queues == before.writable_queues


async def test_frozen_server_is_skipped_and_tried_again_later(java: JavaNameServer, second: JavaNameServer) -> None:
    with registered(java, second):
        servers = NameServers([second.addr])
        await topic_route(servers, "TopicTest")
        await servers.replace_addrs([second.addr, java.addr])
        assert servers.chosen == second.addr
        second.freeze()
        routes = await asyncio.gather(*(topic_route(servers, "TopicTest", 2_000) for _ in range(100)))
        assert len(routes) == 100
        assert servers.chosen == java.addr
        second.thaw()
        await servers.replace_addrs([second.addr])
        assert (await topic_route(servers, "TopicTest", 10_000)).broker_names == {"broker-a", "broker-b"}
        await servers.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_route_stays_cached_without_a_server_and_is_refreshed_when_it_returns(second: JavaNameServer) -> None:
    with registered(second):
        async with Client(second.addr, options=QUICK) as client:
            first = await client.route("TopicTest")
            second.kill()
            stale = await reach(client, "TopicTest", lambda route: route.last_error is not None, "a failed refresh")
            assert stale.data is first.data
            second.start()
            # The restarted server is empty and returns no route. The client keeps the old route, with another reason.
            await reach(client, "TopicTest", lambda route: isinstance(route.last_error, TopicNotExist), "an answer")
            with registered(second):
                fresh = await reach(client, "TopicTest", lambda route: route.last_error is None, "a good refresh")
                assert fresh.writable_queues == first.writable_queues


async def test_signed_changes_are_accepted(server: Server) -> None:
    servers = NameServers([server.addr], credentials=OPERATOR)
    await put_kv(servers, "client-test", "k", "v=1;ü")
    assert await kv_value(servers, "client-test", "k") == "v=1;ü"
    (outcome,) = await import_kv(servers, {"client-test": {"k": "v=1;ü", "k2": "x"}})
    assert outcome.value == Imported(1, 0, 1)
    assert await kv_table(servers, "client-test") == {"k": "v=1;ü", "k2": "x"}
    await delete_kv(servers, "client-test", "k")
    with pytest.raises(QueryNotFound):
        await kv_value(servers, "client-test", "k")
    (wiped,) = await wipe_write_perm(servers, "broker-b")
    assert wiped.value == 2
    assert {queue.broker_name for queue in writable_queues(await topic_route(servers, "TopicTest"))} == {"broker-a"}
    await delete_topic(servers, "only-a")
    with pytest.raises(TopicNotExist):
        await topic_route(servers, "only-a")
    await servers.close()


async def test_server_refuses_a_change_without_a_valid_signature(ours: Serve) -> None:
    for credentials in (None, AclCredentials("operator", "guessed"), AclCredentials("stranger", "12345678é")):
        servers = NameServers([ours.addr], credentials=credentials)
        with pytest.raises(UnexpectedAnswer) as caught:
            await put_kv(servers, "client-test", "k", "v")
        await servers.close()
        assert caught.value.code == ResponseCode.NO_PERMISSION


def test_command_signs_with_a_secret_from_a_file(ours: Serve, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "secret").write_text(f"{OPERATOR.secret_key}\n", encoding="utf-8")
    signed = ("-n", ours.addr, "--access-key", OPERATOR.access_key, "--secret-key-file", str(tmp_path / "secret"))
    cli("kv", "put", "signed", "k", "v", *signed)
    assert cli("kv", "get", "signed", "k", "-n", ours.addr) == "v\n"


async def test_server_returns_its_own_address_over_http(ours: Serve) -> None:
    facts = read_run_file(ours.settings.data.run_dir / "serve.json") or {}
    async with Client(f"http://{facts['http']}/rocketmq/nsaddr") as client:
        assert client.name_servers.addrs == [ours.addr]


async def test_setting_changed_at_run_time_is_read_back(java: JavaNameServer) -> None:
    servers = NameServers([java.addr])
    for value in ("a\\b=ü #!:", "center"):  # the last is the default, for the other tests
        await update_name_server_config(servers, {"productEnvName": value})
        (outcome,) = await name_server_config(servers)
        assert outcome.value is not None
        assert outcome.value["productEnvName"] == value
    await servers.close()


@pytest.mark.parametrize(
    "command",
    [
        ["topicRoute", "-l", "-t", "TopicTest"],
        ["topicClusterList", "-t", "only-a"],
        ["updateKvConfig", "-s", "ns", "-k", "k", "-v", "v"],
        ["deleteKvConfig", "-s", "ns", "-k", "k"],
        ["updateOrderConf", "-t", "T", "-m", "put", "-v", "broker-a:4"],
        ["updateOrderConf", "-t", "T", "-m", "get"],
        ["updateOrderConf", "-t", "T", "-m", "delete"],
        ["wipeWritePerm", "-b", "broker-a"],
        ["addWritePerm", "-b", "broker-a"],
        ["updateNamesrvConfig", "-k", "waitSecondsForService", "-v", "44"],
    ],
    ids=" ".join,
)
def test_command_prints_the_output_of_mqadmin(
    java: JavaNameServer, mqadmin: Mqadmin, cli: Cli, command: list[str]
) -> None:
    with registered(java):
        target = ["-n", java.addr]
        if "get" in command:
            cli("updateOrderConf", "-t", "T", "-m", "put", "-v", "broker-a:4", *target)
        theirs = mqadmin.run(*command, *target)
        # mqadmin forgets the end of the line in updateOrderConf.
        assert cli(*command, *target) == (f"{theirs.rstrip()}\n" if "updateOrderConf" in command else theirs)


@pytest.mark.parametrize("command", [["topicList"], ["topicList", "-c"], ["getNamesrvConfig"]], ids=" ".join)
def test_command_prints_the_lines_of_mqadmin_sorted(
    java: JavaNameServer, mqadmin: Mqadmin, cli: Cli, command: list[str]
) -> None:
    with registered(java):
        printed = cli(*command, "-n", java.addr), mqadmin.run(*command, "-n", java.addr)
    # TopicTest is in two clusters; mqadmin names that of the broker which Java's hash order puts first.
    ours, theirs = (sorted(line for line in text.splitlines() if " TopicTest " not in line) for text in printed)
    assert ours == theirs


def test_commands_print_a_route_as_mqadmins_json_and_clusters_with_its_first_columns(
    java: JavaNameServer, mqadmin: Mqadmin, cli: Cli
) -> None:
    with registered(java):
        theirs = mqadmin.run("topicRoute", "-n", java.addr, "-t", "TopicTest")
        assert json.loads(cli("topicRoute", "-n", java.addr, "-t", "TopicTest")) == fastjson.loads(theirs)
        ours = [line.split() for line in cli("clusterList", "-n", java.addr).splitlines()]
    assert ours[0] == ["#Cluster", "Name", "#Broker", "Name", "#BID", "#Addr"]
    assert ours[1:] == [
        ["c0", "broker-a", "0", MASTER],
        ["c0", "broker-a", "1", SLAVE],
        ["c1", "broker-b", "0", MASTER_B],
    ]


def test_key_value_file_of_java_is_imported(java: JavaNameServer, tmp_path: Path, cli: Cli) -> None:
    cli("kv", "put", "imported", "k", 'v"\n1', "-n", java.addr)
    (file,) = java.process.log_path.parent.rglob("kvConfig.json")
    with JavaNameServer(tmp_path / "other") as other:
        both = f"{java.addr};{other.addr}"
        report = json.loads(cli("kv", "import", str(file), "--json", "-n", both))
        assert report[java.addr]["added"] == report[java.addr]["changed"] == 0
        assert report[other.addr] == {"added": report[java.addr]["unchanged"], "changed": 0, "unchanged": 0}
        assert json.loads(cli("kv", "get", "imported", "k", "--json", "-n", other.addr))["value"] == 'v"\n1'


def examples() -> list[str]:
    text = (REPOSITORY / "docs" / "client.md").read_text(encoding="utf-8")
    return [textwrap.dedent(block) for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("number", range(len(examples())))
def test_example_of_the_documentation_runs(java: JavaNameServer, number: int) -> None:
    source = examples()[number].replace("127.0.0.1:9876", java.addr)
    printed = io.StringIO()
    names: dict[str, Any] = {"__name__": "__main__"}
    with registered(java), contextlib.redirect_stdout(printed):
        exec(compile(source, f"docs/client.md example {number + 1}", "exec"), names)
    expected = re.findall(r"# > (.*)", source)
    assert [line for line in expected if line not in printed.getvalue().splitlines()] == []
