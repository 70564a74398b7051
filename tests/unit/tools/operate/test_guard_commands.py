"""Held brokers on the command line, requested over remoting from a server's processors."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from namesrv_stream.cli import main
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import LeaseKey, LiveKey
from namesrv_stream.route.table import HELD_NAMESPACE
from namesrv_stream.tools.operate import operator_events
from tests.support.builders import Log, a_registration
from tests.support.name_server import Exchange
from tests.support.scripted_name_server import ScriptedNameServer, accept_all
from tests.support.tables import TablesOfLog

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs the command line in a thread and returns (exit code, stdout, stderr)."""

    async def run_main(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["namesrv-stream", *arguments])
        code = await asyncio.to_thread(main)
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run_main


def _log(*, held: bool) -> Log:
    log = Log(FoldSettings(guard_known_ms=0, guard_min_brokers=2))
    for number in range(3):
        log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
    if held:
        log.pass_time(121_000)
    return log


def _server(*, held: bool) -> ScriptedNameServer:
    log, exchange = _log(held=held), Exchange()
    exchange.view.commit(log.output.changes, {0: len(log.records)})
    return ScriptedNameServer(lambda request: [exchange.send(request).response])


async def test_held_brokers_are_listed_with_the_reason(run: Run) -> None:
    async with _server(held=True) as server:
        code, out, _ = await run("guard", "list", "-n", server.addr)
        found = json.loads((await run("guard", "list", "--json", "-n", server.addr))[1])
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[:4] for line in lines] == [["protected:", "c0", f"b{n}", f"10.0.0.{n}:1"] for n in range(3)]
    assert "was near its timeout when 3 of 3 brokers seemed to fail at once (not heard for" in lines[0]
    assert [(b["broker_name"], b["goes_with"], b["ending"]) for b in found] == [
        (f"b{n}", "expired", 3) for n in range(3)
    ]


async def test_a_live_broker_is_not_taken_for_a_held_one_with_a_slash_elsewhere_in_its_names(run: Run) -> None:
    log, exchange = Log(FoldSettings(guard_known_ms=0, guard_min_brokers=2)), Exchange()
    dead = [a_registration("10.0.0.1:1", cluster="a/b", broker_name=name) for name in ("c", "d")]
    live = a_registration("10.0.0.1:1", cluster="a", broker_name="b/c")
    for registration in (*dead, live):
        log.register(registration)
    for _ in range(3):
        log.pass_time(50_000)
        log.heard(live)
    exchange.view.commit(log.output.changes, {0: len(log.records)})
    async with ScriptedNameServer(lambda request: [exchange.send(request).response]) as server:
        found = json.loads((await run("guard", "list", "--json", "-n", server.addr))[1])
    assert [(b["cluster"], b["broker_name"]) for b in found] == [("a/b", "c"), ("a/b", "d")]


@pytest.mark.parametrize("command", ["clusters", "brokers"])
async def test_held_brokers_are_marked_in_the_list_of_brokers(run: Run, command: str) -> None:
    async with _server(held=True) as server:
        out = (await run(command, "-n", server.addr))[1]
    assert out.startswith("CLUSTER")
    assert [line.split()[:3] for line in out.splitlines()[4:]] == [["protected:", "c0", f"b{n}"] for n in range(3)]


async def test_held_brokers_are_marked_below_the_route_of_a_topic(run: Run) -> None:
    async with _server(held=True) as server:
        out = (await run("route", "TopicTest", "-n", server.addr))[1]
        found = json.loads((await run("route", "TopicTest", "--json", "-n", server.addr))[1])
    assert out.startswith("CLUSTER")
    assert [line.split()[:3] for line in out.splitlines()[-3:]] == [["protected:", "c0", f"b{n}"] for n in range(3)]
    assert [b["broker_name"] for b in found["heldBrokers"]] == ["b0", "b1", "b2"]


async def test_json_has_held_brokers_next_to_javas_answer(run: Run) -> None:
    async with _server(held=True) as server:
        clusters = json.loads((await run("clusters", "--json", "-n", server.addr))[1])
        brokers = json.loads((await run("brokers", "--json", "--cluster", "c0", "-n", server.addr))[1])
    assert [b["broker_name"] for b in clusters["heldBrokers"]] == ["b0", "b1", "b2"]
    assert brokers["b1"]["held"][0]["broker_addr"] == "10.0.0.1:1"


async def test_output_is_unchanged_if_no_broker_is_held(run: Run) -> None:
    async with _server(held=False) as server:
        assert (await run("guard", "list", "-n", server.addr))[1] == "no broker is protected\n"
        assert "heldBrokers" not in json.loads((await run("clusters", "--json", "-n", server.addr))[1])
        assert len((await run("clusters", "-n", server.addr))[1].splitlines()) == 4


async def test_a_server_that_answers_nonsense_is_named(run: Run) -> None:
    async with ScriptedNameServer(accept_all) as server:
        code, _, err = await run("guard", "list", "-n", server.addr)
    assert (code, err.count("\n")) == (1, 1)


def test_listing_held_brokers_succeeds_if_none_is_held() -> None:
    for held in (True, False):
        log, exchange = _log(held=held), Exchange()
        exchange.view.commit(log.output.changes, {0: len(log.records)})
        request = RemotingCommand(
            RequestCode.GET_KVLIST_BY_NAMESPACE, opaque=1, ext_fields={"namespace": HELD_NAMESPACE}
        )
        assert exchange.send(request).response.code == ResponseCode.SUCCESS


async def test_the_name_of_a_released_broker_cannot_control_a_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = LeaseKey("b\x1b[2J", LiveKey("c0", "h\x1b[2J:1"))
    monkeypatch.setattr(operator_events, "release", lambda *_: operator_events.Released((key,), (), ()))
    code, out, _ = await run("guard", "release", "c0", "--data-dir", str(tmp_path))
    assert (code, out) == (0, "released: b\\x1b[2J h\\x1b[2J:1\n")


async def test_a_release_where_none_is_held_is_refused(run: Run, tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.register(a_registration())
    tables.commit()
    code, out, err = await run("guard", "release", "c0", "--data-dir", str(tmp_path))
    assert (code, out, err) == (1, "", "error: no broker of cluster c0 is protected\n")
