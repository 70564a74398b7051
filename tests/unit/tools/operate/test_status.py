"""The status of an installation: brokers that need attention, answers of several servers, and the output."""

import json
import os
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from namesrv_stream.cli import main
from namesrv_stream.ports import choose_port
from namesrv_stream.processes import write_run_file
from namesrv_stream.run_books import RunBook
from namesrv_stream.tools.operate.status import BrokerProcess, Condition, find_status
from namesrv_stream.tools.operate.status_command import duration
from tests.support.tables import settings_in

NOW_MS = 1_800_000_000_000
_OK = {"state": "green", "version": 3, "age_ms": 500, "parts": [{"name": "server", "state": "ok"}], "more": 1}
_YELLOW = _OK | {"state": "yellow", "parts": [{"name": "kafka", "state": "degraded", "reason": "Kafka is down"}]}


def _broker(name: str, **fields: Any) -> dict[str, Any]:
    usual = {"cluster": "east", "broker_addr": f"10.0.0.1:{name}", "broker_id": 0, "expires_after_ms": 60_000}
    return usual | {"broker_name": name, "age_ms": 1_000, "since_ms": None, "held": None, "ended": None} | fields


def _end(cause: str, **fields: Any) -> dict[str, Any]:
    return {"at_ms": NOW_MS, "cause": cause, "detail": None, "replaced_by": None} | fields


class _Server:
    """Answers /healthz and /brokers?state=any."""

    def __init__(self, health: Mapping[str, Any], *brokers: Mapping[str, Any]) -> None:
        answers = {"/healthz": health, "/brokers?state=any": brokers}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(answers[self.path]).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "_Server":
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({}, Condition.ALIVE),
        ({"age_ms": 30_001}, Condition.LATE),
        ({"age_ms": None}, Condition.UNKNOWN),
        ({"held": {"reason": "x"}}, Condition.PROTECTED),
        ({"ended": _end("expired")}, Condition.DOWN),
        ({"ended": _end("disconnected")}, Condition.DOWN),
        ({"ended": _end("expired", replaced_by="h:1")}, Condition.REPLACED),
        ({"ended": _end("unregistered")}, Condition.UNREGISTERED),
    ],
)
def test_condition_of_a_broker_follows_from_its_age_guard_and_end(fields: dict[str, Any], condition: Condition) -> None:
    fields = {"age_ms": 1_000} | fields
    assert BrokerProcess("c", "b", "h:1", 60_000, **fields).condition is condition


async def test_the_condition_of_a_broker_is_that_at_the_server_that_heard_it_last() -> None:
    first = _Server(_OK, _broker("a", age_ms=50_000), _broker("b", ended=_end("expired")), _broker("c", age_ms=None))
    second = _Server(_OK, _broker("a", age_ms=2_000), _broker("b", age_ms=3_000), _broker("c", ended=_end("expired")))
    with first, second:
        found = await find_status([first.url, second.url], is_certificate_checked=True)
    assert [(b.broker_name, b.condition, b.age_ms) for b in found.brokers] == [
        ("a", Condition.ALIVE, 2_000),
        ("b", Condition.ALIVE, 3_000),
        ("c", Condition.UNKNOWN, None),
    ]
    assert found.exit_code == 0


@pytest.mark.parametrize(
    ("health", "broker", "code"),
    [
        (_OK, _broker("a"), 0),
        (_OK, _broker("a", ended=_end("unregistered")), 0),
        (_OK, _broker("a", ended=_end("disconnected")), 1),
        (_OK, _broker("a", age_ms=40_000), 1),
        (_YELLOW, _broker("a"), 1),
    ],
)
async def test_the_exit_code_says_whether_something_needs_attention(
    health: dict[str, Any], broker: dict[str, Any], code: int
) -> None:
    with _Server(health, broker) as server:
        assert (await find_status([server.url], is_certificate_checked=True)).exit_code == code


async def test_exit_code_is_1_if_one_server_does_not_answer_and_3_if_none_does() -> None:
    away = f"http://127.0.0.1:{choose_port('127.0.0.1')}"
    with _Server(_OK) as server:
        assert (await find_status([server.url, away], is_certificate_checked=True)).exit_code == 1
    assert (await find_status([away], is_certificate_checked=True)).exit_code == 3


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["namesrv-stream", "status", *arguments])
    return main()


def test_status_shows_parts_brokers_and_recent_removals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("namesrv_stream.clock.SystemClock.now_ms", lambda _: NOW_MS + 192_000)
    brokers = [
        _broker("a", since_ms=NOW_MS),
        _broker("b", age_ms=31_000, is_older=True),
        _broker("new"),
        _broker("idle", drained={"at": None, "by": "ada", "topics": 1, "writable_topics": 0}),
        _broker("c", ended=_end("expired")),
        _broker("d", ended=_end("disconnected", replaced_by="10.0.0.9:1")),
    ]
    with _Server(_YELLOW, *brokers) as server:
        assert _run(monkeypatch, "--http", server.url) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert [line.split() for line in out.splitlines()] == [
        ["PART", "STATE", "DETAIL"],
        ["kafka", "degraded", "Kafka", "is", "down"],
        [],
        ["Broker", "processes:", "1", "down,", "1", "late,", "3", "alive,", "1", "replaced,", "1", "drained"],
        ["CLUSTER", "BROKER", "ID", "ADDRESS", "STATE", "HEARTBEAT", "UP"],
        ["east", "a", "0", "10.0.0.1:a", "alive", "1s", "of", "1m", "3m12s"],
        ["east", "b", "0", "10.0.0.1:b", "late", "31s", "of", "1m", ">1d"],
        ["east", "idle", "0", "10.0.0.1:idle", "alive,", "drained", "1s", "of", "1m", "-"],
        ["east", "new", "0", "10.0.0.1:new", "alive", "1s", "of", "1m", "-"],
        [],
        ["Ended", "within", "the", "last", "24", "hours"],
        ["CLUSTER", "BROKER", "ID", "ADDRESS", "STATE", "AGO", "CAUSE"],
        ["east", "c", "0", "10.0.0.1:c", "down", "3m12s", "expired", "(timeout", "1m)"],
        ["east", "d", "0", "10.0.0.1:d", "replaced", "3m12s", "replaced", "by", "10.0.0.9:1"],
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_large_fleet_is_shortened_to_brokers_that_need_attention(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers = [_broker(f"b{n:03d}", age_ms=31_000 if n == 99 else 1_000) for n in range(100)]
    with _Server(_OK, *brokers) as server:
        _run(monkeypatch, "--http", server.url)
        out = capsys.readouterr().out
        _run(monkeypatch, "--http", server.url, "--all")
        assert capsys.readouterr().out.count("10.0.0.1:b") == 100
    assert "b099" in out
    assert out.count("10.0.0.1:b") == 40
    assert "60 more alive; --all shows them" in out


def test_status_is_available_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with _Server(_OK, _broker("a")) as server:
        assert _run(monkeypatch, "--json", "--http", server.url) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["needs_attention"] is False
    assert found["servers"][server.url]["state"] == "green"
    assert [(b["broker_name"], b["condition"]) for b in found["brokers"]] == [("a", "alive")]


def test_status_without_running_parts_explains_how_to_name_an_installation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    port = choose_port("127.0.0.1")
    code = _run(monkeypatch, "--data-dir", str(tmp_path), "--set", f"http.listen_port={port}")
    out, err = capsys.readouterr()
    assert (code, out) == (3, "")
    assert f"nothing runs on {tmp_path}" in err


def test_status_says_that_a_suspended_server_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    running = "namesrv_stream.tools.operate.status_command.running_parts"
    monkeypatch.setattr(running, lambda _run_dir: {"job": {}, "serve": {}})
    port = choose_port("127.0.0.1")
    assert _run(monkeypatch, "--data-dir", str(tmp_path), "--set", f"http.listen_port={port}") == 3
    assert f"the server of {tmp_path} runs, but does not answer" in capsys.readouterr().err


def test_history_is_degraded_when_it_is_later_than_its_intervals_allow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = settings_in(tmp_path)
    run_file = settings.data.run_dir / "job.json"
    write_run_file(run_file, {})
    os.utime(run_file, (NOW_MS / 1000, NOW_MS / 1000))
    monkeypatch.setattr("namesrv_stream.settings.installation.running_parts", lambda _run_dir: {"job": {}})
    with _Server(_OK) as server:
        port = server.url.rpartition(":")[2]
        lines = []
        for late_ms in (settings.history.late_after_ms, settings.history.late_after_ms + 1):
            monkeypatch.setattr("namesrv_stream.clock.SystemClock.now_ms", lambda _, ms=late_ms: NOW_MS + ms)
            code = _run(monkeypatch, "--data-dir", str(tmp_path), "--set", f"http.listen_port={port}")
            out = capsys.readouterr().out
            lines.append((code, next(line.split(None, 2) for line in out.splitlines() if line.startswith("history"))))
    assert lines == [
        (0, ["history", "ok", "no data yet"]),
        (1, ["history", "degraded", f"no history-job runs on this data directory; see {RunBook.HISTORY_BEHIND}"]),
    ]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0s"), (2_140, "2.1s"), (60_000, "1m"), (61_000, "1m1s"), (7_500_000, "2h5m"), (90_000_000, "1d1h")],
)
def test_durations_have_their_two_largest_units(ms: int, text: str) -> None:
    assert duration(ms) == text
