"""The agent and the client's commands against the real Java NameServer 5.3.3."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from namesrv_stream.client import NameServers, cluster_info, topic_list, topic_route
from namesrv_stream.client.route import TopicRouteData
from namesrv_stream.errors import TopicNotExist
from namesrv_stream.ports import choose_port
from namesrv_stream.tools.agent import AgentConfig, BrokerAgent
from tests.support.processes import Process
from tests.support.rocketmq import JavaNameServer
from tests.support.scripted_name_server import until

pytestmark = pytest.mark.integration

DEADLINE_MS = 20_000


@pytest.fixture(scope="module")
def name_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[JavaNameServer, JavaNameServer]]:
    """Two Java name servers, as a broker in production has."""
    first, second = (JavaNameServer(tmp_path_factory.mktemp("name-server"), heap_mb=128) for _ in range(2))
    with first, second:
        yield first, second


@asynccontextmanager
async def running(*servers: JavaNameServer, **changes: Any) -> AsyncIterator[BrokerAgent]:
    addrs = ";".join(server.addr for server in servers)
    agent = BrokerAgent(AgentConfig(addrs, **{"heartbeat_interval_ms": 3_600_000, "cluster": "agents", **changes}))
    agent.start()
    try:
        await until(lambda: agent.is_registered, "all brokers are registered", DEADLINE_MS / 1000)
        yield agent
    finally:
        await agent.stop()


async def route_at(server: JavaNameServer, topic: str) -> TopicRouteData | None:
    servers = NameServers([server.addr])
    try:
        return await topic_route(servers, topic)
    except TopicNotExist:
        return None
    finally:
        await servers.close()


async def until_route(server: JavaNameServer, topic: str, broker_names: set[str]) -> None:
    """Wait until exactly these brokers serve a topic."""
    async with asyncio.timeout(DEADLINE_MS / 1000):
        while True:
            route = await route_at(server, topic)
            if (route.broker_names if route else set()) == broker_names:
                return
            await asyncio.sleep(0.01)


async def test_brokers_are_routed_by_both_name_servers(name_servers: tuple[JavaNameServer, JavaNameServer]) -> None:
    async with running(*name_servers, broker_name="routed", brokers=5, topics=3, topic_prefix="Routed") as agent:
        for server in name_servers:
            route = await route_at(server, "Routed2")
            assert route is not None
            assert route.broker_names == set(agent.brokers)
            assert {queue.write_queue_nums for queue in route.queue_datas} == {8}


async def test_a_change_is_visible_once_it_is_accepted(name_servers: tuple[JavaNameServer, JavaNameServer]) -> None:
    async with running(*name_servers, broker_name="changing", topic_prefix="Changing") as agent:
        assert await agent.change(add=["added"], queues=3) == 2
        for server in name_servers:
            route = await route_at(server, "added")
            assert route is not None
            assert route.queue_datas[0].read_queue_nums == 3


async def test_stopped_broker_is_removed_from_all_name_servers(
    name_servers: tuple[JavaNameServer, JavaNameServer],
) -> None:
    async with running(*name_servers, broker_name="leaving", topic_prefix="Leaving") as agent:
        assert await agent.stop() == 2
        for server in name_servers:
            await until_route(server, "Leaving0", set())


async def test_killed_broker_is_removed_when_its_connection_closes(
    name_servers: tuple[JavaNameServer, JavaNameServer],
) -> None:
    async with running(*name_servers, broker_name="killed", brokers=2, topic_prefix="Killed") as agent:
        await agent.kill()
        for server in name_servers:
            await until_route(server, "Killed0", set())


async def test_registration_is_restored_after_a_restart_of_the_name_server(tmp_path: Path) -> None:
    server = JavaNameServer(tmp_path, heap_mb=128)
    with server:
        async with running(server, broker_name="patient", topic_prefix="Patient", max_back_off_ms=200):
            server.kill()
            server.start()
            await until_route(server, "Patient0", {"patient"})


async def test_answer_of_java_is_decoded_completely(name_servers: tuple[JavaNameServer, JavaNameServer]) -> None:
    async with running(*name_servers, broker_name="known", broker_addr="10.0.0.1:10911", topic_prefix="Known"):
        servers = NameServers([server.addr for server in name_servers])
        info = await cluster_info(servers)
        topics = await topic_list(servers)
        await servers.close()
    assert info.brokers["known"].master_addr == "10.0.0.1:10911"
    assert "known" in info.clusters["agents"]
    assert {"Known0", "known", "agents"} <= set(topics)


async def test_a_thousand_brokers_register_from_one_process(
    name_servers: tuple[JavaNameServer, JavaNameServer],
) -> None:
    fleet = {"brokers": 1_000, "topics": 20, "total_topics": 5_000, "topic_prefix": "Fleet", "start_spread_ms": 3_000}
    async with running(*name_servers, broker_name="fleet", **fleet) as agent:
        assert agent.tally.registered == 2_000
        route = await route_at(name_servers[1], "Fleet0000")
        assert route is not None
        assert len(route.broker_datas) == 4


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "namesrv_stream", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def agent_process(name_servers: tuple[JavaNameServer, JavaNameServer], tmp_path: Path) -> Iterator[Process]:
    """`namesrv-stream agent` as a user starts it."""
    where = ("-n", f"{name_servers[0].addr};{name_servers[1].addr}", "--cluster", "cli", "--name", "cli-broker")
    what = ("--topic", "CliTopic", "--topics", "0", "--heartbeat-interval", "1s")
    process = Process("agent", [sys.executable, "-m", "namesrv_stream", "agent", *where, *what], tmp_path / "agent.log")
    with process:
        process.wait_for_log("all brokers registered", 30)
        yield process


def test_agent_unregisters_on_sigterm_and_reports_it(
    agent_process: Process, name_servers: tuple[JavaNameServer, JavaNameServer]
) -> None:
    addr = name_servers[0].addr
    assert command("route", "CliTopic", "-n", addr).returncode == 0
    assert agent_process.terminate() == 0
    assert "stopped unregistered=2 failed=0" in agent_process.log_text()
    gone = command("route", "CliTopic", "-n", addr)
    assert (gone.returncode, gone.stdout, gone.stderr) == (1, "", "error: no route for topic CliTopic\n")


def test_agent_unregisters_on_ctrl_c(agent_process: Process) -> None:
    agent_process.signal(signal.SIGINT)
    assert agent_process.wait(30) == 0


@pytest.mark.usefixtures("agent_process")
def test_commands_print_tables_and_json(name_servers: tuple[JavaNameServer, JavaNameServer]) -> None:
    addrs = f"{name_servers[0].addr};{name_servers[1].addr}"
    table = command("route", "CliTopic", "-n", addrs).stdout.splitlines()
    assert table[1].split() == ["cli", "cli-broker", "8", "8", "6", "0=127.0.0.1:10911"]
    table = command("topicRoute", "-t", "CliTopic", "-l", "-n", addrs).stdout.splitlines()
    assert table[1].split() == ["cli", "cli-broker", "{0=127.0.0.1:10911}", "8", "8", "6"]
    assert (
        command("topicRoute", "-t", "CliTopic", "-n", addrs).stdout
        == command("route", "--json", "CliTopic", "-n", addrs).stdout
    )
    assert "CliTopic" in command("topicList", "-n", addrs).stdout.splitlines()
    assert command("topics", "--cluster", "cli", "-n", addrs).stdout.splitlines()[0] == "CliTopic"
    processes = command("clusterList", "-c", "cli", "-n", addrs).stdout.splitlines()
    assert processes[1].split() == ["cli", "cli-broker", "0", "127.0.0.1:10911"]
    assert '"brokerName": "cli-broker"' in command("brokers", "--json", "-n", addrs).stdout


def test_unreachable_name_server_is_a_missing_prerequisite() -> None:
    addr = f"127.0.0.1:{choose_port('127.0.0.1')}"
    asked = command("clusters", "-n", addr)
    assert asked.returncode == 3
    assert asked.stderr == (
        f"error: no name server answers at {addr} (connection refused): start one,"
        " or name others with -n, --data-dir or NAMESRV_ADDR\n"
    )


def test_invalid_name_server_list_is_a_usage_error() -> None:
    asked = command("topics", "-n", "nowhere")
    assert asked.returncode == 2
    assert asked.stderr == "error: name servers: nowhere: expected host:port\n"
