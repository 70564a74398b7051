"""The command line with scripted name servers: flags, exit codes, and one line for each failure."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from namesrv_stream.cli import main
from namesrv_stream.ports import choose_port
from namesrv_stream.remoting.command import SIGNATURE, response_to
from tests.support.scripted_name_server import ScriptedNameServer, ScriptedRoutes, an_address_server
from tests.unit.client.test_admin import KvScript, refuse

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs the command line in a thread and returns (exit code, stdout, stderr)."""
    for name in ("NAMESRV_ADDR", "NAMESRV_ACCESS_KEY", "NAMESRV_SECRET_KEY", "NAMESRV_SECURITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    async def run_main(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["namesrv-stream", *arguments])
        code = await asyncio.to_thread(main)
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run_main


async def test_name_servers_come_from_a_flag_a_variable_or_an_address_server(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 1}})) as server:
        away = f"127.0.0.1:{choose_port('127.0.0.1')}"
        assert await run("topics", "-n", f"{away};{server.addr}") == (0, "t\n", "")
        monkeypatch.setenv("NAMESRV_ADDR", server.addr)
        assert await run("topicList") == (0, "t\n", "")
        async with an_address_server(f"HTTP/1.1 200 OK\r\n\r\n{server.addr}\n".encode()) as (url, _):
            assert await run("topics", "--json", "-n", url) == (0, '[\n  "t"\n]\n', "")


@pytest.mark.parametrize("alias", [["route", "t"], ["route", "-t", "t"]])
async def test_a_route_is_a_table(run: Run, alias: list[str]) -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 2}})) as server:
        code, out, _ = await run(*alias, "-n", server.addr)
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["CLUSTER", "BROKER", "READ", "WRITE", "PERM", "ADDRESSES"],
        ["c0", "a", "2", "2", "6", "0=a:10911"],
    ]


@pytest.mark.parametrize("alias", [["topicRoute", "-l", "-t", "t"], ["mqadmin", "topicRoute", "-l", "-t", "t"]])
async def test_mqadmins_route_has_mqadmins_columns(run: Run, alias: list[str]) -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 2}})) as server:
        code, out, _ = await run(*alias, "-n", server.addr)
    assert code == 0
    assert out.splitlines()[1].split() == ["c0", "a", "{0=a:10911}", "2", "2", "6"]


async def test_mqadmins_route_is_json_unless_a_table_is_requested(run: Run) -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 2}})) as server:
        assert json.loads((await run("topicRoute", "-t", "t", "-n", server.addr))[1])["queueDatas"][0]["perm"] == 6
        assert (await run("topicClusterList", "-t", "t", "-n", server.addr))[1] == "c0\n"
        assert json.loads((await run("topicList", "-c", "--json", "-n", server.addr))[1]) == {"t": "c0"}


async def test_topic_without_a_route_gives_exit_code_1_and_one_line(run: Run) -> None:
    async with ScriptedNameServer(ScriptedRoutes()) as server:
        assert await run("route", "t", "-n", server.addr) == (1, "", "error: no route for topic t\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["route"], 2, "TOPIC: is missing"),
        (["topics", "-n", "nonsense"], 2, "expected host:port"),
        (["topics", "-n", "http://h:x/"], 2, "expected http://host"),
        (["kv", "get", "ns"], 2, "Missing argument 'KEY'"),
        (["updateOrderConf", "-t", "t", "-m", "put"], 2, "-v: is missing"),
        (["updateOrderConf", "-t", "t", "-m", "steal"], 2, "expected put, get or delete"),
        (["topics", "--access-key", "k"], 2, "--secret-key-file: is missing or empty"),
        (
            ["topics", "--secret-key-file", "/absent", "--access-key", "k"],
            2,
            "/absent: --secret-key-file: No such file",
        ),
        (["kv", "import", "/absent.json"], 2, "/absent.json: FILE: No such file"),
        (["kv", "put", "ns", "\udcff", "v", "-n", "127.0.0.1:1"], 2, "not UTF-8"),
    ],
)
async def test_usage_error_is_one_line(run: Run, arguments: list[str], code: int, words: str) -> None:
    found, out, err = await run(*arguments)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert words in err


async def test_unreachable_servers_give_exit_code_3(run: Run) -> None:
    code, out, err = await run("clusters", "-n", f"127.0.0.1:{choose_port('127.0.0.1')}")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "connection refused" in err


async def test_requests_are_signed_with_a_secret_from_a_file_or_a_variable(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("secret\n")
    async with ScriptedNameServer() as server:
        target = ("-n", server.addr, "--access-key", "operator")
        assert (await run("kv", "put", "ns", "k", "v", *target, "--secret-key-file", str(tmp_path / "secret")))[0] == 0
        monkeypatch.setenv("NAMESRV_SECRET_KEY", "secret")
        assert (await run("kv", "put", "ns", "k", "v", *target))[0] == 0
    first, second = [(request.ext_fields or {})[SIGNATURE] for request in server.requests]
    assert first == second


async def test_the_key_value_table_can_be_read_and_changed(run: Run, tmp_path: Path) -> None:
    async with ScriptedNameServer(KvScript()) as server:
        target = ("-n", server.addr)
        put = f"put k in namespace ns at {server.addr}\n"
        assert await run("kv", "put", "ns", "k", "v", *target) == (0, put, "")
        assert await run("kv", "get", "ns", "k", *target) == (0, "v\n", "")
        assert json.loads((await run("kv", "list", "ns", "--json", *target))[1]) == {"k": "v"}
        assert (await run("kv", "get", "ns", "none", *target))[::2] == (1, "error: No config item\n")
        (tmp_path / "kvConfig.json").write_text('{"configTable":{"ns":{"k":"v","k2":"x"}}}')
        imported = f"{server.addr}: 1 added, 0 changed, 1 unchanged\n"
        assert await run("kv", "import", str(tmp_path / "kvConfig.json"), *target) == (0, imported, "")


@pytest.mark.parametrize("content", ["nonsense", "[]", '{"table":{}}', '{"configTable":{"ns":{"k":1}}}'])
async def test_invalid_key_value_file_is_refused(run: Run, tmp_path: Path, content: str) -> None:
    (tmp_path / "kvConfig.json").write_text(content)
    code, out, err = await run("kv", "import", str(tmp_path / "kvConfig.json"))
    assert (code, out, err.count("\n")) == (2, "", 1)


async def test_refused_change_gives_exit_code_1(run: Run) -> None:
    async with ScriptedNameServer(refuse) as server:
        error = "error: PUT_KV_CONFIG (100) was answered NO_PERMISSION (16): not you; "
        error += "this request was not signed: see --access-key and --secret-key-file\n"
        assert await run("kv", "put", "ns", "k", "v", "-n", server.addr) == (1, "", error)


async def test_write_permission_is_changed_at_every_server(run: Run) -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, 0, ext_fields={"wipeTopicCount": "7"})]) as a:
        line = f"wipe write perm of broker[b] in name server[{a.addr}] OK, 7\n"
        assert await run("perm", "wipe", "b", "-n", a.addr) == (0, line, "")
        assert await run("wipeWritePerm", "-b", "b", "-n", a.addr) == (0, line, "")
        away = f"127.0.0.1:{choose_port('127.0.0.1')}"
        code, out, err = await run("perm", "wipe", "b", "--json", "-n", f"{a.addr};{away}")
    assert code == 1
    assert json.loads(out) == {a.addr: {"topics": 7}, away: {"error": f"{away}: connection refused"}}
    assert err.startswith("error: not changed at 1 of 2 name servers")


async def test_one_setting_can_be_requested(run: Run) -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, 0, body=b"a=1\nb=2\n")]) as server:
        code, out, _ = await run("name-server", "config", "get", "b", "--json", "-n", server.addr)
        assert (code, json.loads(out)) == (0, {server.addr: {"b": "2"}})
        assert (await run("name-server", "config", "get", "c", "-n", server.addr))[0] == 1


async def test_only_user_topics_are_listed_by_default(run: Run) -> None:
    script = ScriptedRoutes({"Orders": {"a": 1}, "a": {"a": 1}, "c0": {"a": 1}, "%RETRY%g": {"a": 1}})
    async with ScriptedNameServer(script) as server:
        assert await run("topics", "-n", server.addr) == (0, "Orders\n", "")
        assert (await run("topics", "--all", "-n", server.addr))[1].split() == ["%RETRY%g", "Orders", "a", "c0"]
        assert (await run("topicList", "-n", server.addr))[1].split() == ["%RETRY%g", "Orders", "a", "c0"]


async def test_usage_errors_name_the_help_to_read(run: Run) -> None:
    assert "(see `namesrv-stream kv get --help`)" in (await run("kv", "get", "ns"))[2]
    assert "(see `namesrv-stream what-if --help`)" in (await run("what-if"))[2]
    assert "did you mean --cluster east" in (await run("topics", "-c", "east"))[2]


async def test_namespaces_are_listed_by_an_installation_only(run: Run) -> None:
    code, out, err = await run("kv", "list", "-n", "127.0.0.1:1")
    assert (code, out) == (2, "")
    assert "NAMESPACE: is missing" in err


async def test_port_out_of_range_is_reported(run: Run) -> None:
    assert "port 99999 is out of range" in (await run("clusters", "-n", "127.0.0.1:99999"))[2]


async def test_deletion_of_a_topic_says_that_brokers_register_it_again(run: Run) -> None:
    async with ScriptedNameServer(ScriptedRoutes({"t": {"a": 1}})) as server:
        code, out, _ = await run("topic", "delete", "t", "-n", server.addr)
        assert (code, out.splitlines()[0]) == (0, f"deleted the route of t at {server.addr}")
        assert "registers it again" in out
        assert "`mqadmin deleteTopic`" in out
        _, as_json, _ = await run("topic", "delete", "t", "-n", server.addr, "--json")
        assert json.loads(as_json) == {"name_servers": [server.addr]}


@pytest.mark.parametrize("command", [["agent", "--help"], ["kv", "list", "--help"], ["--help"], ["serve", "--help"]])
async def test_help_fits_80_columns_and_truncates_no_option(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = await run(*command)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out.replace("HOST:PORT;…", "")
    assert "..." not in out.replace("[ARGS]...", "")
    assert "<bool>" not in out


async def test_a_signed_change_that_is_refused_names_the_account(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_SECRET_KEY", "wrong")
    async with ScriptedNameServer(refuse) as server:
        for change in (["kv", "put", "ns", "k", "v"], ["kv", "delete", "ns", "k"]):
            code, _, err = await run(*change, "--access-key", "ops", "-n", server.addr)
            assert code == 1
            assert "this request was signed as ops" in err
