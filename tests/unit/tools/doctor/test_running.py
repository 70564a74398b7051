"""Findings of the doctor about ports, processes and servers, with real sockets."""

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from namesrv_stream.clock import SystemClock
from namesrv_stream.processes import write_run_file
from namesrv_stream.run_books import RunBook
from namesrv_stream.settings import load_settings
from namesrv_stream.settings.layers import Flag
from namesrv_stream.tools.doctor.finding import Finding, Grade
from namesrv_stream.tools.doctor.running import exposure, ports, processes, servers
from tests.support.certificates import Authority, KeyPair
from tests.support.processes import free_port
from tests.support.tables import settings_in

_READY = b'{"ready":true,"reasons":[]}'
_JOB_DOWN = RunBook.JOB_DOWN.encode()


@contextmanager
def _server(
    body: bytes, status: int = 200, ahead_s: int = 0, tls: KeyPair | None = None, location: str = ""
) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(SystemClock().now_ms() / 1000 + ahead_s, usegmt=True)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls.cert, tls.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _grades(found: Iterator[Finding]) -> list[Grade]:
    return [f.grade for f in found]


@pytest.mark.parametrize(
    ("body", "status", "grade"),
    [
        (_READY, 200, Grade.FINE),
        (b'{"ready":true,"reasons":["kafka: away"]}', 200, Grade.WARNING),
        (b'{"ready":true,"reasons":["job: silent"],"parts":[{"run_book":"%b"}]}' % _JOB_DOWN, 200, Grade.FAULT),
        (b'{"ready":false,"reasons":["loading"]}', 503, Grade.FAULT),
        (b"<html>", 200, Grade.FAULT),
        (b"[]", 200, Grade.FAULT),
    ],
)
def test_health_page_of_a_server_is_used(tmp_path: Path, body: bytes, status: int, grade: Grade) -> None:
    with _server(body, status) as url:
        assert _grades(servers(settings_in(tmp_path), (url,))) == [grade]


def test_finding_about_a_server_names_the_run_book_of_each_reason_once(tmp_path: Path) -> None:
    parts = [{"run_book": RunBook.JOB_DOWN}, {"state": "ok"}, {"run_book": RunBook.JOB_DOWN}]
    parts.append({"run_book": RunBook.BROKERS_HELD})
    with _server(json.dumps({"ready": True, "reasons": ["tables: old"], "parts": parts}).encode()) as url:
        (found,) = servers(settings_in(tmp_path), (url,))
    assert found.remedy == f"see {RunBook.JOB_DOWN}, {RunBook.BROKERS_HELD}"


@pytest.mark.parametrize("ahead_s", [-60, 60])
def test_a_server_with_another_time_is_a_warning(tmp_path: Path, ahead_s: int) -> None:
    with _server(_READY, ahead_s=ahead_s) as url:
        *_, clock = servers(settings_in(tmp_path), (url,))
        assert clock.grade is Grade.WARNING
        assert ("ahead of" if ahead_s > 0 else "behind") in clock.text


def test_server_with_another_id_is_not_the_expected_one(tmp_path: Path) -> None:
    with _server(_READY) as ready, _server(b"", 302, location=f"{ready}/readyz") as url:
        assert _grades(servers(settings_in(tmp_path), (url,))) == [Grade.FAULT]


def test_port_without_http_is_a_fault(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(4_096)
                peer.sendall(b"+OK hello\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        (found,) = servers(settings_in(tmp_path), (f"http://127.0.0.1:{listener.getsockname()[1]}",))
        thread.join()
    assert found.grade is Grade.FAULT
    assert "not HTTP" in found.text


def test_a_server_that_does_not_answer_is_a_fault(tmp_path: Path) -> None:
    assert _grades(servers(settings_in(tmp_path), (f"http://127.0.0.1:{free_port()}",))) == [Grade.FAULT]


def test_used_port_is_a_fault_that_names_the_key(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = settings.http.model_copy(update={"listen_port": taken.getsockname()[1]})
        kafka = settings.embedded_kafka.model_copy(update={"listen_port": 0})
        remoting = settings.remoting.model_copy(update={"listen_port": free_port()})
        update = {"http": http, "embedded_kafka": kafka, "remoting": remoting}
        found = {f.area: f for f in ports(settings.model_copy(update=update))}
    assert [f.grade for f in found.values()] == [Grade.FINE, Grade.FAULT, Grade.FINE]
    assert found["http port"].text.startswith("http.listen_port: ")


def test_run_file_of_a_foreign_process_is_ignored(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    # The writer is this process: pytest.
    write_run_file(settings.data.run_dir / "serve.json", {"http": "127.0.0.1:1"})
    assert _grades(processes(settings)) == [Grade.NOTE]


@contextmanager
def _product_process() -> Iterator[int]:
    """A process with a command line of the product."""
    script = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, "namesrv_stream", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def test_a_server_without_a_job_on_its_machine_is_a_note(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.data.run_dir.mkdir(parents=True)
    with _product_process() as pid:
        (settings.data.run_dir / "serve.json").write_text(json.dumps({"http": "127.0.0.1:1", "pid": pid}))
        found = list(processes(settings))
    assert [f.grade for f in found] == [Grade.FINE, Grade.NOTE]
    assert _grades(processes(settings)) == [Grade.NOTE]


@pytest.mark.parametrize(
    ("ready", "starting", "text", "notes"),
    [
        (("serve",), ("job",), "serve (pid {0}), job (pid {0}, starting)", 0),
        (("serve", "job"), ("history-job",), "job (pid {0}), serve (pid {0}), history-job (pid {0}, starting)", 0),
        (("serve", "job"), (), "job (pid {0}), serve (pid {0})", 1),
        (("job",), ("job",), "job (pid {0})", 1),
        ((), ("job",), "job (pid {0}, starting)", 0),
    ],
)
def test_starting_parts_are_listed_and_not_reported_as_missing(
    ready: tuple[str, ...], starting: tuple[str, ...], text: str, notes: int, tmp_path: Path
) -> None:
    run_dir = settings_in(tmp_path).data.run_dir
    (run_dir / "starting").mkdir(parents=True)
    with _product_process() as pid:
        for folder, parts in ((run_dir, ready), (run_dir / "starting", starting)):
            for part in parts:
                (folder / f"{part}.json").write_text(json.dumps({"pid": pid}))
        (listed, *missed) = processes(settings_in(tmp_path))
    assert listed.text == text.format(pid)
    assert [f.text.startswith("no history-job runs on this data directory") for f in missed] == [True] * notes


def test_a_disabled_history_is_not_reported_as_missing(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    history = settings.history.model_copy(update={"enabled": False})
    settings.data.run_dir.mkdir(parents=True)
    with _product_process() as pid:
        (settings.data.run_dir / "job.json").write_text(json.dumps({"pid": pid}))
        assert _grades(processes(settings.model_copy(update={"history": history}))) == [Grade.FINE]


def test_own_server_is_queried_over_https_if_it_uses_tls(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings = settings.model_copy(update={"http": settings.http.model_copy(update={"tls": True})})
    pair = Authority(tmp_path / "certs").issue()
    with _server(_READY, tls=pair) as url, _product_process() as pid:
        settings.data.run_dir.mkdir(parents=True)
        address = url.removeprefix("https://")
        (settings.data.run_dir / "serve.json").write_text(json.dumps({"http": address, "pid": pid}))
        (found,) = servers(settings, ())
        assert (found.area, found.grade) == (f"server {url}", Grade.FINE)
        # The certificate of a server that is named is verified.
        assert _grades(servers(settings, (url,))) == [Grade.FAULT]


@pytest.mark.parametrize(
    ("flag", "grade"),
    [
        ("remoting.listen_host=0.0.0.0", Grade.WARNING),
        ("remoting.listen_host=::", Grade.WARNING),
        ("remoting.listen_host=127.0.0.1", Grade.FINE),
        ("admin.broker_networks=10.0.0.0/8", Grade.FINE),
        ("admin.accounts_file=/etc/accounts", Grade.FINE),
    ],
)
def test_a_remoting_port_that_is_open_to_everybody_is_a_warning_that_names_the_settings(
    flag: str, grade: Grade
) -> None:
    settings = load_settings(environ={}, flags=[Flag("test", *flag.split("=", 1))]).settings
    (found,) = exposure(settings)
    assert found.grade is grade
    assert ("admin.broker_networks" in found.remedy) is (grade is Grade.WARNING)


def test_remoting_port_with_required_certificates_gives_no_warning() -> None:
    settings = load_settings(environ={}).settings
    tls = settings.tls.model_copy(update={"cert_file": "cert.pem", "key_file": "key.pem"})
    assert _grades(exposure(settings.model_copy(update={"tls": tls}))) == [Grade.FINE]


def test_a_server_that_listens_on_every_address_is_queried_on_the_loopback_address(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with _server(_READY) as url, _product_process() as pid:
        settings.data.run_dir.mkdir(parents=True)
        address = f"0.0.0.0:{url.rpartition(':')[2]}"
        (settings.data.run_dir / "serve.json").write_text(json.dumps({"http": address, "pid": pid}))
        (found,) = servers(settings, ())
    assert (found.area, found.grade) == (f"server {url}", Grade.FINE)
