"""The webhook follows a scripted server over HTTP and reports to a receiver on a real socket."""

import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.processes import read_run_file
from namesrv_stream.settings import Flag, Settings, load_settings
from namesrv_stream.tools.webhook.reporter import Reporter, run_webhook
from tests.support.processes import free_port
from tests.support.webhook_receiver import Receiver

_ROW = {"partition": 0, "offset": 7, "seq": 0, "at_ms": 1_000, "kind": "broker_live", "gone": True, "cause": "expired"}
_DEATH = {**_ROW, "cluster": "c0", "broker_name": "b0", "broker_addr": "10.0.0.1:10911"}
_Answer = tuple[int, dict[str, Any]]


@contextmanager
def _server(answers: dict[str, _Answer]) -> Iterator[tuple[str, list[str]]]:
    """Run a server that answers /changes by ``since``; yields its URL and its requests."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            since = self.path.split("since=")[1].split("&")[0]
            status, body = answers[since]
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _settings(tmp_path: Path, receiver: Receiver | None, *servers: str) -> Settings:
    flags = [Flag("test", "data.dir", str(tmp_path)), Flag("test", "webhook.servers", ";".join(servers))]
    url = [Flag("test", "webhook.url", receiver.url)] if receiver else []
    return load_settings(environ={}, flags=[*flags, *url]).settings


def _changes(position: str, *rows: dict[str, Any]) -> _Answer:
    return 200, {"position": position, "whole": True, "rows": rows}


def _position(tmp_path: Path) -> object:
    return (read_run_file(tmp_path / "webhook" / "position.json") or {}).get("position")


class _Stop(Exception):
    pass


def _run(settings: Settings, monkeypatch: pytest.MonkeyPatch, *, sleeps: int) -> None:
    """Run until it has waited ``waits`` times."""
    left = [sleeps]

    def sleep(_seconds: float) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise _Stop

    monkeypatch.setattr("time.sleep", sleep)
    with pytest.raises(_Stop):
        Reporter(settings).run()


def test_webhook_begins_at_the_end_and_stores_its_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"now": _changes("1.a.5"), "1.a.5": _changes("1.a.8", _DEATH), "1.a.8": (500, {})}
    with _server(answers) as (url, asked), Receiver() as receiver:
        _run(_settings(tmp_path, receiver, url), monkeypatch, sleeps=0)
    assert [event["broker_addr"] for event in receiver.accepted_events] == ["10.0.0.1:10911"]
    assert "wait=0&kind=broker_data%2Cbroker_live%2Cguard" in asked[0]
    assert _position(tmp_path) == "1.a.8"


def test_a_position_is_synced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    monkeypatch.setattr("os.fsync", lambda number: synced.append(stat.S_ISDIR(os.fstat(number).st_mode)))
    with _server({"now": _changes("1.a.5"), "1.a.5": (500, {})}) as (url, _), Receiver() as receiver:
        _run(_settings(tmp_path, receiver, url), monkeypatch, sleeps=0)
    assert synced[-2:] == [False, True]  # the file, then its folder


def test_webhook_continues_at_its_position_and_reports_lost_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "webhook").mkdir()
    (tmp_path / "webhook" / "position.json").write_text('{"position": "1.a.8"}', encoding="utf-8")
    answers = {"1.a.8": (410, {"detail": "gone"}), "now": _changes("1.b.2"), "1.b.2": (503, {})}
    with _server(answers) as (url, _), Receiver() as receiver:
        _run(_settings(tmp_path, receiver, url), monkeypatch, sleeps=0)
    assert [event["event"] for event in receiver.accepted_events] == ["events_lost"]
    assert _position(tmp_path) == "1.b.2"


def test_no_event_is_lost_before_tables_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _server({"now": _changes("1.0.")}) as (url, asked), Receiver() as receiver:
        _run(_settings(tmp_path, receiver, url), monkeypatch, sleeps=2)
    assert len(asked) == 3
    assert receiver.reports == []
    assert _position(tmp_path) is None


def test_the_webhook_queries_the_next_server_if_one_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"now": _changes("1.a.5"), "1.a.5": (500, {})}
    with _server(answers) as (url, asked), Receiver() as receiver:
        _run(_settings(tmp_path, receiver, f"http://127.0.0.1:{free_port()}", url), monkeypatch, sleeps=1)
    assert len(asked) == 2
    assert _position(tmp_path) == "1.a.5"


def test_many_events_are_sent_in_several_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**_DEATH, "offset": offset} for offset in range(150)]
    answers = {"now": _changes("1.a.0"), "1.a.0": _changes("1.a.150", *rows), "1.a.150": (500, {})}
    with _server(answers) as (url, _), Receiver() as receiver:
        _run(_settings(tmp_path, receiver, url), monkeypatch, sleeps=0)
    assert [len(report.events) for report in receiver.reports] == [100, 50]
    assert [event["id"] for event in receiver.accepted_events] == [f"0:{offset}:0" for offset in range(150)]


def test_the_webhook_does_not_start_without_a_url(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"webhook\.url: is missing"):
        run_webhook(_settings(tmp_path, None))


@pytest.fixture
def without_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.signal", lambda number, action: None)


@pytest.mark.usefixtures("without_signals")
def test_a_second_webhook_on_the_same_data_directory_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as receiver:
        settings = _settings(tmp_path, receiver)
    monkeypatch.setattr(Reporter, "run", lambda self: run_webhook(settings))
    with pytest.raises(ConfigError, match="another webhook"):
        run_webhook(settings)


@pytest.mark.usefixtures("without_signals")
def test_a_failure_of_the_webhook_is_not_reported_as_another_webhook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Reporter) -> None:
        raise BlockingIOError("no more memory for buffers")

    monkeypatch.setattr(Reporter, "run", fail)
    with Receiver() as receiver, pytest.raises(BlockingIOError):
        run_webhook(_settings(tmp_path, receiver))
