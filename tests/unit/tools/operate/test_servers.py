"""The list of name servers as text."""

import pytest

from namesrv_stream.tools.operate.servers_command import NameServer, ServerList, print_servers
from tests.support.command_line import run_command

_STARTED_MS = 1_795_534_810_049  # 2026-11-24 15:40:10.049Z


def test_a_row_says_whether_clients_receive_the_address_of_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    servers = [
        NameServer("ns-a", _STARTED_MS, "talking", "10.0.0.1:9876", True, None),
        NameServer("ns-b", _STARTED_MS, "silent", "", False, "it is silent"),
    ]
    print_servers(ServerList(["10.0.0.1:9876"], "log", servers, ["ns-\x1b"], ["ns-a"]))
    title, first, second, unknown, still_listed, _, nsaddr = capsys.readouterr().out.splitlines()
    assert title.split() == ["SERVER", "ADDRESS", "STATUS", "STARTED", "LISTED"]
    assert first.split() == ["ns-a", "10.0.0.1:9876", "talking", "2026-11-24", "15:40:10Z", "yes"]
    assert second.split("  ")[-1].strip() == "no: it is silent"
    assert "\x1b" not in unknown
    assert still_listed == "ns-a stays listed: its KV entry has no effect, because the list would be empty"
    assert nsaddr == "/rocketmq/nsaddr answers 10.0.0.1:9876 (from log)"


def test_several_servers_are_refused_by_name() -> None:
    finished = run_command("servers", "--http", "http://127.0.0.1:1;http://127.0.0.1:2")
    assert finished.code == 2
    assert "--http: expected one server" in finished.err
