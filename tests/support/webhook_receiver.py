"""A receiver of webhook reports on a real socket; it can refuse reports, stop, and restart on its port."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self


class Report(NamedTuple):
    """One POST that was accepted or refused."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.body)["events"]
        return found


class Receiver:
    """The receiver; a context manager.

    Args:
        port: Port to listen on; 0 for any free one.

    Attributes:
        reports: All received reports, in order.
        statuses: Statuses of the next answers, each used once; later answers have 204.
    """

    def __init__(self, port: int = 0) -> None:
        self.reports: list[Report] = []
        self.statuses: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.statuses.pop(0) if receiver.statuses else 204
                receiver.reports.append(Report(status, dict(self.headers), body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def accepted_events(self) -> list[dict[str, Any]]:
        """Events of the accepted reports."""
        return [event for report in self.reports if report.status < 300 for event in report.events]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
