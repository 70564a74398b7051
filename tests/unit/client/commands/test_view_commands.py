"""The commands for address views."""

import json
from pathlib import Path

import pytest

from namesrv_stream.route.address_views import VIEWS_NAMESPACE
from tests.support.scripted_name_server import ScriptedNameServer
from tests.unit.client.commands.test_commands import Run, run
from tests.unit.client.test_admin import KvScript

__all__ = ["run"]

TOML = """
listeners = ["outside"]
[[mappings]]
broker_name = "broker-*"
to = "{broker_name}.example.org:{10911+id}"
"""


async def test_a_view_is_set_listed_shown_and_removed(run: Run, tmp_path: Path) -> None:
    file, script = tmp_path / "outside.toml", KvScript()
    file.write_text(TOML)
    async with ScriptedNameServer(script) as server:
        assert (await run("view", "list", "-n", server.addr))[1] == "there are no address views\n"
        done = f"set address view outside at {server.addr}\n"
        assert await run("view", "set", "outside", str(file), "-n", server.addr) == (0, done, "")
        script.table[VIEWS_NAMESPACE]["later"] = '{"of_a_later_release": 1}'
        code, out, _ = await run("view", "list", "-n", server.addr)
        _, listed, invalid = await run("view", "list", "-n", server.addr, "--json")
        shown = json.loads((await run("view", "show", "outside", "-n", server.addr))[1])
        assert json.loads((await run("view", "show", "outside", "-n", server.addr, "--json"))[1]) == shown
        script.table[VIEWS_NAMESPACE] |= {"text": "none", "odd": '{"\\u001b[2J": 1}'}
        for flags in ((), ("--json",)):
            _, terminal, errors = await run("view", "list", "-n", server.addr, *flags)
            assert "\x1b" not in terminal + errors
        assert (await run("view", "show", "text", "-n", server.addr))[1] == "none\n"
        assert json.loads((await run("view", "show", "text", "-n", server.addr, "--json"))[1]) == "none"
        assert (await run("view", "remove", "outside", "-n", server.addr))[0] == 0
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[1] == ["outside", "outside", "-", "keep", "1"]
    assert out.splitlines()[2].startswith("invalid: address view 'later': of_a_later_release: unknown key")
    assert json.loads(listed) == {"outside": shown}
    assert invalid == f"{out.splitlines()[2]}\n"
    assert shown["mappings"] == [{"broker_name": "broker-*", "to": "{broker_name}.example.org:{10911+id}"}]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "view.json",
            '{"mappings": [{"to": "nowhere"}]}',
            "address view 'v': mappings[0].to: 'nowhere' is not host:port",
        ),
        ("view.json", "{", "the value is not JSON"),
        ("view.toml", "listeners = [", "cannot be read"),
    ],
)
async def test_an_invalid_file_is_refused_before_it_is_sent(
    run: Run, tmp_path: Path, name: str, content: str, words: str
) -> None:
    (tmp_path / name).write_text(content)
    async with ScriptedNameServer(KvScript()) as server:
        code, out, err = await run("view", "set", "v", str(tmp_path / name), "-n", server.addr)
        assert server.requests == []
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


async def test_a_route_in_a_view_needs_the_http_port(run: Run) -> None:
    code, _, err = await run("route", "t", "--view", "outside", "-n", "127.0.0.1:1")
    assert code == 2
    assert "--view: needs the HTTP port of the installation" in err
