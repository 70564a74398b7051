"""A second name server next to a running `up`: it shares Kafka and tables, and has its own id and data directory."""

import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from namesrv_stream.processes import read_run_file
from namesrv_stream.settings.names import public_key
from tests.support.kafka import REPOSITORY
from tests.support.processes import ServeProcess, free_port, wait_until
from tests.support.stack import Stack

READY_TIMEOUT_S = 60.0


class SecondServer:
    """`namesrv-stream serve`; a context manager. After a restart it has the same address and id.

    Args:
        data_dir: Its data directory.
        stack: The product whose Kafka and tables it uses.
        server_id: Its id, which no other server has.
        is_advertised: Whether it is on the list of name servers that clients can request over HTTP.
        environ: Additional environment variables.
        module: What ``python -m`` runs.
        flags: Further settings, ``section__key="value"``.
    """

    def __init__(
        self,
        data_dir: Path,
        stack: Stack,
        server_id: str = "second",
        *,
        is_advertised: bool = False,
        environ: Mapping[str, str] | None = None,
        module: str = "namesrv_stream",
        **flags: str | int | Path,
    ) -> None:
        settings = stack.settings
        port = free_port()
        self.remoting = f"127.0.0.1:{port}"
        self._run_file = data_dir / "run" / "serve.json"
        sets = {
            "remoting.listen_host": "127.0.0.1",
            "remoting.listen_port": port,
            "http.listen_port": free_port(),
            "kafka.bootstrap_servers": f"127.0.0.1:{settings.embedded_kafka.listen_port}",
            "data.tables": settings.data.tables or settings.data.tables_dir,
            "server.server_id": server_id,
            "remoting.advertised_address": self.remoting if is_advertised else "",
            **{public_key(name.replace("__", ".", 1)): value for name, value in flags.items()},
        }
        self.process = ServeProcess(
            "second-server",
            [
                *(sys.executable, "-m", module, "serve", "--data-dir", data_dir),
                *(part for key, value in sets.items() for part in ("--set", f"{key}={value}")),
            ],
            data_dir.parent / f"{data_dir.name}.log",
            env=environ,
            cwd=REPOSITORY,
        )
        self.http = f"127.0.0.1:{sets['http.listen_port']}"

    def start(self) -> None:
        """Start the server and wait until it is ready.

        Raises:
            AssertionError: The server does not start; shows the end of its log.
        """
        self._run_file.unlink(missing_ok=True)
        self.process.start()
        wait_until(
            lambda: read_run_file(self._run_file) or not self.process.is_alive,
            READY_TIMEOUT_S,
            f"the second server is ready; see {self.process.log_path}",
        )
        assert self.process.is_alive, self.process.log_text()

    def kill(self) -> None:
        """Kill the server (SIGKILL)."""
        self.process.kill()

    def get_text(self, path: str) -> str:
        """Return the text at a path of its HTTP port."""
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def __enter__(self) -> Self:
        """Start it."""
        try:
            self.start()
        except BaseException:
            self.process.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server, as an operator does."""
        try:
            if self.process.is_alive:
                self.process.terminate()
        finally:
            self.process.close()
