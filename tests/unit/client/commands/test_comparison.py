"""Comparison of two scripted name servers: lasting differences are named, temporary ones are not."""

import json
from collections.abc import Sequence

from namesrv_stream.client.commands.compare import Comparison, compare
from namesrv_stream.remoting.command import RemotingCommand, RequestCode
from tests.support.scripted_name_server import Answers, ScriptedNameServer, ScriptedRoutes
from tests.unit.client.commands.test_commands import Run, run

__all__ = ["run"]


async def _compared(left: ScriptedNameServer, right: ScriptedNameServer, patience_s: float = 0) -> Comparison:
    return await compare([left.addr, right.addr], None, None, ["ORDER_TOPIC_CONFIG"], 3_000, patience_s)


def _rows(found: Comparison) -> Sequence[tuple[str, str, str, list[str | None]]]:
    return [(d.key.kind, d.key.name, d.property, list(d.values.values())) for d in found.differences]


async def test_equal_servers_have_no_difference() -> None:
    routes = {"t": {"a": 4, "b": 4}, "u": {"a": 1}}
    async with ScriptedNameServer(ScriptedRoutes(routes)) as left, ScriptedNameServer(ScriptedRoutes(routes)) as right:
        found = await _compared(left, right)
    assert found.differences == []
    assert found.compared == {"cluster": 1, "broker": 2, "topic": 2, "kv": 1}


async def test_only_differing_values_are_reported() -> None:
    left_routes, right_routes = {"t": {"a": 4, "b": 4}}, {"t": {"a": 4, "b": 8}}
    async with (
        ScriptedNameServer(ScriptedRoutes(left_routes)) as left,
        ScriptedNameServer(ScriptedRoutes(right_routes)) as right,
    ):
        found = await _compared(left, right)
    assert _rows(found) == [
        ("topic", "t", "queues of b", ["4 read, 4 write, perm 6", "8 read, 8 write, perm 6"]),
    ]


async def test_names_with_blanks_are_not_taken_for_several_names() -> None:
    left_routes, right_routes = {"t": {"a b": 4, "c": 4}}, {"t": {"a": 4, "b c": 4}}
    async with (
        ScriptedNameServer(ScriptedRoutes(left_routes)) as left,
        ScriptedNameServer(ScriptedRoutes(right_routes)) as right,
    ):
        rows = _rows(await _compared(left, right))
    assert ("cluster", "c0", "broker names", ["'a b' c", "a 'b c'"]) in rows


async def test_item_unknown_to_one_server_is_reported_with_all_its_values() -> None:
    async with (
        ScriptedNameServer(ScriptedRoutes({"t": {"a": 4}})) as left,
        ScriptedNameServer(ScriptedRoutes()) as right,
    ):
        found = await _compared(left, right)
    rows = _rows(found)
    assert {(kind, name) for kind, name, _, _ in rows} == {("cluster", "c0"), ("broker", "a"), ("topic", "t")}
    assert all(values[1] is None for *_, values in rows)


async def test_registration_in_progress_at_one_server_is_no_difference() -> None:
    late = ScriptedRoutes()

    def settles(request: RemotingCommand) -> Answers:
        answers = late(request)
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            late.routes = {"t": {"a": 4}}  # known from the second query on
        return answers

    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 4}})) as left, ScriptedNameServer(settles) as right:
        found = await _compared(left, right, patience_s=30)
    assert found.differences == []


async def test_command_prints_a_table_and_returns_an_exit_code_for_differences(run: Run) -> None:
    async with (
        ScriptedNameServer(ScriptedRoutes({"t": {"a": 4}})) as left,
        ScriptedNameServer(ScriptedRoutes({"t": {"a": 5}})) as right,
    ):
        both = f"{left.addr};{right.addr}"
        code, out, _ = await run("compare", "-n", both, "--patience", "0")
        assert code == 1
        assert out.splitlines()[0].split() == ["what", "name", "fact", left.addr, right.addr]
        assert "queues of a" in out
        assert "1 difference in 1 cluster, 1 broker, 1 topic, 1 KV namespace" in out
        _, out, _ = await run("compare", "-n", both, "--patience", "0", "--json")
        assert json.loads(out)["differences"][0]["values"] == {
            left.addr: "4 read, 4 write, perm 6",
            right.addr: "5 read, 5 write, perm 6",
        }
        assert await run("compare", "-n", f"{left.addr};{left.addr}") == (
            2,
            "",
            "error: command line: -n: expected at least two name servers, host:port;host:port\n",
        )


async def test_equal_servers_end_with_exit_code_0(run: Run) -> None:
    routes = {"t": {"a": 4}}
    async with ScriptedNameServer(ScriptedRoutes(routes)) as left, ScriptedNameServer(ScriptedRoutes(routes)) as right:
        code, out, _ = await run("compare", "-n", f"{left.addr};{right.addr}")
    assert (code, out) == (0, "equal: 1 cluster, 1 broker, 1 topic, 1 KV namespace\n")
