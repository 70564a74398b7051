"""A real embedded Kafka for tests, and settings with a new directory and free ports."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from namesrv_stream.errors import KafkaUnreachable
from namesrv_stream.kafka import ensure_topics
from namesrv_stream.settings import Flag, Settings, load_settings
from namesrv_stream.settings.names import public_key
from tests.support.processes import dying_with_parent, free_port, suspend

REPOSITORY = Path(__file__).resolve().parents[2]


def settings_for(data_dir: Path, **flags: str | int) -> Settings:
    """Return the settings of a test: everything in ``data_dir`` and on free ports of 127.0.0.1.

    Args:
        data_dir: The data directory.
        flags: More settings, ``section__key="value"``.
    """
    values: dict[str, str] = {
        "data.dir": str(data_dir),
        "remoting.listen_host": "127.0.0.1",
        "advanced.embedded_kafka.heap": "256m",
        **{f"{section}.listen_port": str(free_port()) for section in ("remoting", "http", "embedded_kafka")},
        **{public_key(name.replace("__", ".", 1)): str(value) for name, value in flags.items()},
    }
    return load_settings(environ={}, flags=[Flag("test", key, value) for key, value in values.items()]).settings


class KafkaProcess:
    """The embedded Kafka as a child of the test."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._log = settings.data.dir / "kafka-test.log"
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        embedded = self.settings.embedded_kafka
        command = [sys.executable, "-m", "namesrv_stream", "kafka", "--data-dir", str(self.settings.data.dir)]
        command += ["--set", f"embedded_kafka.listen_port={embedded.listen_port}"]
        command += ["--set", f"advanced.embedded_kafka.heap={embedded.heap}"]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            return subprocess.Popen(dying_with_parent(command), stdout=log, stderr=log, cwd=REPOSITORY)

    def wait_ready(self, deadline_s: float = 90.0) -> None:
        """Wait until it answers and has the product's topics."""
        until = time.monotonic() + deadline_s
        while True:
            if self.process.poll() is not None:
                pytest.fail(f"Kafka ended with {self.process.returncode}: {self._log.read_text()[-2000:]}")
            try:
                ensure_topics(self.settings)
            except KafkaUnreachable:
                if time.monotonic() > until:
                    pytest.fail(f"Kafka did not answer in {deadline_s} s: {self._log.read_text()[-2000:]}")
            else:
                return

    def log_text(self) -> str:
        """Its output so far."""
        return self._log.read_text(encoding="utf-8")

    def freeze(self) -> None:
        """Suspend Kafka (SIGSTOP); its connections stay open."""
        suspend(self.process.pid)

    def thaw(self) -> None:
        """Let Kafka continue (SIGCONT)."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill Kafka (SIGKILL)."""
        self.process.kill()
        self.process.wait(timeout=30)

    def stop(self) -> None:
        """Stop Kafka (SIGTERM), and wait for its end."""
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()

    def restart(self) -> None:
        """Start it again on the same data and wait until it answers."""
        self.process = self._start()
        self.wait_ready()
