"""Runs all parts on this machine: starts them in order, prints READY, and stops them together."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from namesrv_stream.addresses import split_addr
from namesrv_stream.errors import KafkaUnreachable, PrerequisiteMissing
from namesrv_stream.kafka import bootstrap_servers, ensure_topics
from namesrv_stream.logs import progress, report_error, writes_json
from namesrv_stream.processes import PARENT_PID_VARIABLE
from namesrv_stream.server.start.process import require_files
from namesrv_stream.settings import (
    ENVIRONMENT_PREFIX,
    Settings,
    passed_through_secrets,
    project_home,
    server_secrets,
)
from namesrv_stream.tools.webhook.reports import Sender
from namesrv_stream.up.child import ChildSpec
from namesrv_stream.up.preflight import (
    acquire_run_lock,
    require_prerequisites,
    require_writable,
    with_fixed_ports,
    write_effective,
)
from namesrv_stream.up.supervisor import Supervisor

_KAFKA_START_S: Final = 90.0  # on a busy machine; about 3 s on an idle one
_POLL_S: Final = 0.05
# Together less than the 10 s within which a stop must end. The server writes its last events, so it stops before Kafka.
_STOP_TIMEOUT_S: Final = {"webhook": 0.4, "history-job": 1.0, "serve": 3.0, "job": 2.5, "kafka": 3.0}
# The server has priority: of two busy processors it gets more than one.
_NICENESS: Final = {"job": 5, "kafka": 5}
# Brokers and clients can work without the other parts: even without the job, the server answers and accepts brokers.
_REQUIRED: Final = frozenset({"kafka", "serve"})


CommandLine = Callable[[str, Path], Sequence[str | Path]]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Starts the parts."""

    command_line: CommandLine
    effective: Path
    settings: Settings

    def spec(self, command: str, has_run_file: bool = True) -> ChildSpec:
        return ChildSpec(
            name=command,
            argv=self.command_line(command, self.effective),
            stop_timeout_s=_STOP_TIMEOUT_S[command],
            run_file=self.settings.data.run_dir / f"{command}.json" if has_run_file else None,
            secrets=self._secrets(command),
            niceness=_NICENESS.get(command, 0),
            is_required=command in _REQUIRED,
        )

    def _secrets(self, command: str) -> dict[str, str]:
        # Secrets are neither in the effective configuration nor in arguments, which everybody on the machine can read.
        own = server_secrets(self.settings) if command == "serve" else {}
        return passed_through_secrets(self.settings) | own


class StartReport:
    """Prints the progress of ``up``'s start, with the seconds since the start began."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def print_line(self, text: str) -> None:
        """Print a line to stderr, in JSON if ``logs.format`` is json."""
        with contextlib.suppress(OSError):  # the terminal may be gone
            if writes_json():
                progress(text)
            else:
                print(f"[{time.monotonic() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)


def command_line(command: str, effective: Path) -> Sequence[str | Path]:
    """Return the command line that runs a part: this interpreter, the command, the effective configuration file."""
    return (sys.executable, "-m", "namesrv_stream", command, "--conf", effective)


def run_up(settings: Settings, command_line: CommandLine = command_line) -> int:
    """Run everything until SIGINT, SIGTERM or SIGHUP; blocks.

    Args:
        settings: Settings of all parts.
        command_line: (command of the part, effective configuration file) → its command line.

    Returns:
        0 after such a signal, else the exit code of the child that could not start.

    Raises:
        NamesrvStreamError: The start failed before the first child was started.
    """
    report = StartReport()
    require_prerequisites(settings)
    require_files(settings)
    if settings.webhook.is_configured:
        Sender(settings.webhook)
    require_writable(settings.data.dir)
    lock = acquire_run_lock(settings.data.run_dir / "up.lock", report.print_line)
    try:
        settings = with_fixed_ports(settings)
        report.print_line(f"starting in {settings.data.dir} (logs in {settings.data.logs_dir})")
        return asyncio.run(_run(settings, report, lock, command_line))
    finally:
        os.close(lock)


async def _run(settings: Settings, report: StartReport, lock: int, command_line: CommandLine) -> int:
    loop = asyncio.get_running_loop()
    parts = _Parts(command_line, write_effective(settings), settings)
    supervisor = Supervisor(
        settings.data.logs_dir,
        _child_environment(os.environ),
        report.print_line,
        inherited_fds=[lock],
        max_log_bytes=settings.logs.max_file_bytes,
    )
    stop_requested = asyncio.Event()

    def on_signal() -> None:
        if stop_requested.is_set():
            supervisor.hurry()
        stop_requested.set()

    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signal_number, on_signal)
    start = loop.create_task(_start(settings, parts, supervisor, report), name="start")
    stop_wait = loop.create_task(stop_requested.wait(), name="stop-requested")
    ends: list[asyncio.Future[Any]] = [start, stop_wait, supervisor.failure]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not stop_requested.is_set() and start.done():
            start.result()  # raises the error of the start
            await asyncio.wait(ends[1:], return_when=asyncio.FIRST_COMPLETED)
        return _exit_code(supervisor, stop_requested.is_set())
    finally:
        start.cancel()
        stop_wait.cancel()
        await asyncio.wait(ends[:2])
        report.print_line("stopping")
        await supervisor.stop()
        report.print_line("stopped")


def _exit_code(supervisor: Supervisor, is_requested: bool) -> int:
    if is_requested or not supervisor.failure.done():
        return 0
    failure = supervisor.failure.result()
    report_error(f"{failure.name}: {failure.reason or 'see its log'}")
    return failure.exit_code


async def _start(settings: Settings, parts: _Parts, supervisor: Supervisor, report: StartReport) -> None:
    servers = bootstrap_servers(settings)
    if settings.is_kafka_embedded:
        report.print_line("starting Kafka")
        supervisor.start(parts.spec("kafka", has_run_file=False))
    await wait_for_kafka(settings, servers)
    report.print_line(f"Kafka answers at {servers}; its topics are in order")
    job = parts.spec("job")
    serve = parts.spec("serve")
    supervisor.start(job)
    supervisor.start(serve)
    report.print_line("starting the Spark job and the server")
    fields = await supervisor.wait_ready(serve)
    supervisor.is_settled = True
    listening = f"remoting={fields['remoting']} http={fields['http']} kafka={servers}"
    print(f"READY {listening} data={settings.data.dir}", flush=True)
    report.print_line("brokers can register")
    if settings.webhook.is_configured:
        supervisor.start(parts.spec("webhook"))
    await supervisor.wait_ready(job)
    report.print_line("the Spark job has committed its first batch")
    if settings.has_history:  # last, so that the others have all of the processors during the start
        supervisor.start(parts.spec("history-job"))


def _child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    # The effective configuration is complete, and a remaining variable would override a flag given to `up`.
    inherited = {name: value for name, value in environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    return inherited | {
        PARENT_PID_VARIABLE: str(os.getpid()),
        "NAMESRV_STREAM_HOME": str(project_home()),
        "PYTHONUNBUFFERED": "1",
    }


async def wait_for_kafka(settings: Settings, servers: str) -> None:
    """Wait until Kafka listens, if ``up`` has started it, and create and check the topics.

    Raises:
        PrerequisiteMissing: Kafka does not answer.
    """
    try:
        if settings.is_kafka_embedded:
            await _wait_listening(servers)
        await _ensure_topics(settings)
    except KafkaUnreachable as error:
        if not settings.is_kafka_embedded:
            raise
        log = settings.data.logs_dir / "kafka.log"
        remedy = f"see {log}; without an error there, the machine may be slow: start `up` again"
        raise PrerequisiteMissing(error.name, remedy) from None


async def _wait_listening(servers: str) -> None:
    host, port = split_addr(servers)
    deadline = time.monotonic() + _KAFKA_START_S
    while True:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            if time.monotonic() > deadline:
                reason = f"{error.strerror or error}, {_KAFKA_START_S:g} s after its start"
                raise KafkaUnreachable(servers, reason) from None
            await asyncio.sleep(_POLL_S)
            continue
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return


async def _ensure_topics(settings: Settings) -> None:
    """Create and check the topics; an embedded Kafka may need a moment until it answers."""
    deadline = time.monotonic() + (_KAFKA_START_S if settings.is_kafka_embedded else 0.0)
    while True:
        try:
            await _in_daemon_thread(lambda: ensure_topics(settings))
        except KafkaUnreachable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_POLL_S)
        else:
            return


async def _in_daemon_thread(work: Callable[[], None]) -> None:
    """Run blocking ``work`` in a thread that, unlike those of the loop, does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[None] = loop.create_future()

    def finish(error: Exception | None) -> None:
        if outcome.cancelled():
            return
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)

    def target() -> None:
        error: Exception | None = None
        try:
            work()
        except Exception as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the outcome is not needed
            loop.call_soon_threadsafe(finish, error)

    threading.Thread(target=target, name="topics", daemon=True).start()
    await outcome
