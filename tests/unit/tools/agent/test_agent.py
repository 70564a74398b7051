"""The agent with name servers that answer, refuse, fall silent, close connections and return."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, response_to
from namesrv_stream.tools.agent import AgentConfig, BrokerAgent
from tests.support.clocks import ManualClock
from tests.support.scripted_name_server import Answers, ScriptedNameServer, accept_all, say_nothing, until

REGISTER = RequestCode.REGISTER_BROKER
UNREGISTER = RequestCode.UNREGISTER_BROKER


@asynccontextmanager
async def running(
    *servers: ScriptedNameServer, clock: ManualClock | None = None, **changes: Any
) -> AsyncIterator[BrokerAgent]:
    """Run an agent whose brokers register once, and again only because of a change or a new connection."""
    defaults: dict[str, Any] = {"heartbeat_interval_ms": 3_600_000, "max_back_off_ms": 20, "unregister_timeout_ms": 500}
    addrs = ";".join(server.addr for server in servers)
    agent = BrokerAgent(AgentConfig(addrs, **{**defaults, **changes}), clock)
    agent.start()
    try:
        yield agent
    finally:
        await agent.kill()


async def registered(agent: BrokerAgent) -> None:
    await until(lambda: agent.is_registered, "all brokers are registered")


def body_of(request: RemotingCommand) -> dict[str, Any]:
    wrapper: dict[str, Any] = json.loads(request.body or b"")["topicConfigSerializeWrapper"]
    return wrapper


async def test_every_broker_registers_with_every_name_server() -> None:
    async with ScriptedNameServer() as a, ScriptedNameServer() as b, running(a, b, brokers=3) as agent:
        await registered(agent)
        for server in (a, b):
            assert server.connections == 3
            assert {(request.ext_fields or {})["brokerName"] for request in server.requests} == set(agent.brokers)


async def test_unreachable_name_server_does_not_delay_others() -> None:
    async with ScriptedNameServer() as good, ScriptedNameServer() as gone:
        await gone.stop()
        async with running(good, gone, brokers=2, heartbeat_interval_ms=20) as agent:
            await until(lambda: len(good.requests) >= 10, "ten registrations at the server that runs")
            assert (agent.tally.connected, agent.tally.registered) == (2, 2)
        await gone.start()


async def test_silent_name_server_does_not_delay_others() -> None:
    async with (
        ScriptedNameServer() as good,
        ScriptedNameServer(say_nothing) as silent,
        running(good, silent, heartbeat_interval_ms=20),
    ):
        await until(lambda: len(good.requests) >= 10, "ten registrations at the server that answers")
        assert len(silent.requests) == 1


async def test_waiting_for_all_name_servers_ends_with_the_timeout() -> None:
    async with (
        ScriptedNameServer() as good,
        ScriptedNameServer(say_nothing) as silent,
        running(good, silent, register_timeout_ms=100) as agent,
    ):
        accepted = await agent.brokers["broker-a"].register()
        assert accepted == 1


async def test_heartbeats_follow_the_interval() -> None:
    async with ScriptedNameServer() as server, running(server, heartbeat_interval_ms=20):
        await until(lambda: len(server.requests) >= 5, "five registrations")
        assert set(server.codes()) == {REGISTER}
        assert server.connections == 1
        assert len({body_of(request)["dataVersion"]["counter"] for request in server.requests}) == 1


async def test_a_change_registers_the_new_table_at_once_with_a_new_version() -> None:
    clock = ManualClock()
    async with ScriptedNameServer() as server, running(server, clock=clock, topics=2) as agent:
        await registered(agent)
        clock.advance(1_000)
        assert await agent.change(add=["orders"], remove=["Topic0"], queues=3) == 1
        before, after = map(body_of, server.requests)
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1
    assert after["dataVersion"]["timestamp"] == before["dataVersion"]["timestamp"] + 1_000
    assert "Topic0" not in after["topicConfigTable"]
    assert after["topicConfigTable"]["orders"]["writeQueueNums"] == 3


async def test_a_change_of_one_broker_does_not_register_the_others() -> None:
    async with ScriptedNameServer() as server, running(server, brokers=2) as agent:
        await registered(agent)
        assert await agent.change("broker-a-1", add=["orders"]) == 1
        assert len(server.requests) == 3
        assert "orders" not in agent.brokers["broker-a-0"].topics


async def test_changes_while_an_answer_is_awaited_are_sent_together() -> None:
    held: list[RemotingCommand] = []

    def hold(request: RemotingCommand) -> Answers:
        held.append(request)
        return []

    async with ScriptedNameServer() as server, running(server) as agent:
        await registered(agent)
        server.script = hold
        changes = [asyncio.ensure_future(agent.change(add=[f"t{number}"])) for number in range(5)]
        await until(lambda: held, "the first change is being sent")
        server.script = lambda request: [response_to(held[0], 0), response_to(request, 0)]
        server.drop_connections()
        await asyncio.gather(*changes)
        await until(lambda: agent.is_registered, "registered again")
        assert body_of(server.requests[-1])["dataVersion"]["counter"] == 5
        assert len(server.requests) <= 4


async def test_a_closed_connection_is_opened_again_and_the_broker_registers() -> None:
    async with ScriptedNameServer() as server, running(server) as agent:
        await registered(agent)
        server.drop_connections()
        await until(lambda: len(server.requests) == 2, "registered again")
        await until(lambda: agent.is_registered, "accepted again")
        assert server.connections == 2
        assert agent.tally.connections_lost == 1


async def test_the_agent_registers_with_a_name_server_that_comes_back() -> None:
    async with ScriptedNameServer() as server, running(server) as agent:
        await registered(agent)
        await server.stop()
        await until(lambda: agent.tally.registered == 0, "the agent notices")
        await server.start()
        await registered(agent)


async def test_a_refused_registration_is_tried_again_at_the_next_interval(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "namesrv_stream")
    async with (
        ScriptedNameServer(lambda request: [response_to(request, 1, remark="no\nway")]) as server,
        running(server, heartbeat_interval_ms=20) as agent,
    ):
        await until(lambda: agent.tally.refused >= 3, "refused three times")
        assert not agent.is_registered
        server.script = accept_all
        await registered(agent)
        assert server.connections == 1
    refusals = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(refusals) == 1
    assert "code 1: no\\nway" in refusals[0]


async def test_missing_answer_closes_the_connection() -> None:
    async with ScriptedNameServer(say_nothing) as server, running(server, register_timeout_ms=30) as agent:
        await until(lambda: server.connections >= 2, "connected again")
        assert agent.tally.timed_out >= 1


async def test_stopping_unregisters_everywhere() -> None:
    async with ScriptedNameServer() as a, ScriptedNameServer() as b:
        async with running(a, b, brokers=2) as agent:
            await registered(agent)
            assert await agent.stop() == 4
        assert agent.tally.unregistered == 4
        for server in (a, b):
            assert server.codes() == [REGISTER, REGISTER, UNREGISTER, UNREGISTER]


async def test_agent_unregisters_from_a_server_that_lost_its_connection() -> None:
    async with ScriptedNameServer() as server, running(server, max_back_off_ms=3_600_000) as agent:
        await registered(agent)
        server.drop_connections()
        await until(lambda: not agent.is_registered, "the agent notices")
        assert await agent.stop() == 1
        assert server.codes()[-1] == UNREGISTER


async def test_stop_reports_servers_that_did_not_confirm() -> None:
    async with (
        ScriptedNameServer() as good,
        ScriptedNameServer() as silent,
        running(good, silent, unregister_timeout_ms=50) as agent,
    ):
        await registered(agent)
        silent.script = say_nothing
        assert await agent.stop() == 1


async def test_stop_without_any_connection_is_quick() -> None:
    async with ScriptedNameServer() as server:
        await server.stop()
        async with running(server) as agent:
            assert await agent.stop() == 1
        await server.start()


async def test_kill_closes_connections_without_unregistration() -> None:
    async with ScriptedNameServer() as server, running(server, brokers=2) as agent:
        await registered(agent)
        await agent.kill()
        assert server.codes() == [REGISTER, REGISTER]
        assert agent.tally.connected == 0


async def test_timeout_is_sent_to_the_name_server() -> None:
    async with ScriptedNameServer() as server, running(server, timeout_ms=5_000) as agent:
        await registered(agent)
        assert (server.requests[0].ext_fields or {})["heartbeatTimeoutMillis"] == "5000"


async def test_system_topics_of_a_broker_can_be_omitted() -> None:
    async with ScriptedNameServer() as server, running(server, system_topics=False, topics=2) as agent:
        await registered(agent)
        assert set(body_of(server.requests[0])["topicConfigTable"]) == {"Topic0", "Topic1"}
