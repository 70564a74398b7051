"""The product in the simulation: which names of its modules are replaced, and how its processes start.

Everything else of the product runs as it is: ``serve`` from its main program on, without HTTP, TLS and the native lane;
the job from its main program on, without Spark; tables, fold, view, gateway and Kafka sessions as a whole.
"""

import importlib
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from namesrv_stream.server.native.known_answers import KnownAnswers
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.start.process import exit_code_of
from namesrv_stream.settings import Settings, load_settings
from namesrv_stream.settings.layers import Flag
from namesrv_stream.tables.storage.folder import Folder
from tests.simulation.models.data_files import parquet_of
from tests.simulation.models.delta_model import DeltaModel
from tests.simulation.runtime.loop import start_loop
from tests.simulation.runtime.network import SimSocket
from tests.simulation.runtime.paths import SimPath, SimWatch, os_of, shutil_of
from tests.simulation.runtime.process import Process
from tests.simulation.runtime.threads import clock_of, queue_of, threading_of, time_of

if TYPE_CHECKING:
    from tests.simulation.world import World

#: What uses the time module, and what uses threads.
_TIME: Final = (
    "kafka.log_reader",
    "kafka.event_topics",
    "server.start.identity",
    "streaming.route_table.fold_query",
    "streaming.route_table.route_job",
    "streaming.route_table.ticks",
    "tables.compaction",
    "tables.delta.table_writer",
    "tables.route_writers",
    "tables.snapshot_follower",
)
_THREADING: Final = (
    "server.gateway.publisher",
    "server.view.commit_applier",
    "streaming.route_table.fold_query",
    "streaming.route_table.route_job",
    "streaming.route_table.ticks",
    "tables.compaction",
    "tables.delta.table_writer",
    "tables.snapshot_follower",
)
_SYSTEM_CLOCK: Final = (
    "server.main",
    "streaming.route_table.route_job",
    "streaming.route_table.ticks",
    "tables.delta.table_writer",
)
#: Pauses of the product that are no settings, in seconds; the scale of the plan applies to them, too.
_PAUSES: Final = (
    ("server.view.client_views", "_INTERVAL_S"),
    ("server.view.client_views", "_START_POLL_S"),
    ("server.start.identity", "_POLL_S"),
    ("server.start.identity", "_SEARCH_EVERY_S"),
    ("tables.compaction", "_ROUND_S"),
)
_DATA: Final = "/simulation"
#: Registrations with more values are decoded by the process that the simulation replaces.
_INLINE_VALUES: Final = 500
#: Registrations of ended brokers that the fold retains: fewer than in production, so that a run exceeds them.
MAX_RETAINED: Final = 40


def _nothing(*_: object, **__: object) -> None:
    pass


async def _no_part() -> None:
    pass


def _replacements(world: "World") -> Iterator[tuple[str, str, Any]]:
    """Yield (module, name in it, replacement)."""
    scheduler, clients, spark = world.scheduler, world.clients, world.spark
    new_id = world.new_id
    yield from ((module, "time", time_of(scheduler)) for module in _TIME)
    yield from ((module, "threading", threading_of(scheduler)) for module in _THREADING)
    yield from ((module, "SystemClock", clock_of(scheduler)) for module in _SYSTEM_CLOCK)
    yield "server.gateway.publisher", "queue", queue_of(scheduler)
    yield "server.gateway.publisher", "_Producer", clients.producer
    yield "kafka.event_topics", "KafkaProducer", clients.producer
    yield "streaming.route_table.route_job", "KafkaProducer", clients.producer
    yield "kafka.log_reader", "KafkaConsumer", clients.consumer
    yield "kafka.clients", "KafkaAdminClient", clients.admin
    yield "streaming.route_table.route_job", "build_session", spark.build_session
    yield "streaming.route_table.route_job", "start_query", spark.start_query
    yield "streaming.route_table.route_job", "reason_of_end", _nothing
    yield "streaming.route_table.route_job", "kill_jvm", _nothing
    yield "streaming.route_table.route_job", "shutil", SimpleNamespace(rmtree=_nothing)
    for module in ("server.main", "server.start.opening", "streaming.route_table.route_job"):
        yield module, "progress", _nothing
    for module in ("server.main", "streaming.route_table.route_job"):
        yield module, "write_run_file", _nothing
    yield "streaming.route_table.route_job", "report_error", _nothing
    yield "server.main", "bind", lambda host, port, section: SimSocket(host, port)
    yield "server.main", "HttpServer", NoHttpServer
    yield "server.main", "keep_all", _nothing
    yield "server.main", "return_free_memory", _no_part  # real memory; in simulated time, it is most of the work
    yield "server.main", "build_core", world.build_core
    yield "server.main", "CommitApplier", world.build_applier
    yield "server.net.response_cache", "KnownAnswers", SmallKnownAnswers
    yield "route.fold.liveness", "MAX_RETAINED", MAX_RETAINED
    yield "processor.register_body", "_INLINE_VALUES", _INLINE_VALUES
    yield "tables.storage", "Folder", lambda path: Folder(SimPath(world.disk, str(path)))  # type: ignore[arg-type]
    yield "tables.storage.folder", "os", os_of()
    yield "tables.storage.folder", "shutil", shutil_of()
    yield "tables.storage.folder", "CommitWatch", partial(SimWatch, longest_us=2_000_000 * world.plan.scale)
    for module, name in _PAUSES:
        pause_s = getattr(importlib.import_module(f"namesrv_stream.{module}"), name)
        yield module, name, pause_s * world.plan.scale
    yield from ((module, "pq", parquet_of()) for module in ("tables.delta.data_file", "tables.compaction"))
    for module in ("tables.storage.folder", "tables.delta.table_writer"):
        yield module, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=new_id()))
    for module in ("tables.delta.open_table", "tables.repair"):
        yield module, "DeltaTable", DeltaModel(world.disk, new_id)


@contextmanager
def simulated(world: "World") -> Iterator[None]:
    """Replace the names while a simulation runs, which must be the only one of this process."""
    before: list[tuple[Any, str, Any]] = []
    level = logging.root.manager.disable
    if not world.shows_logs:
        logging.disable(logging.CRITICAL)
    try:
        for module_name, name, replacement in _replacements(world):
            module = importlib.import_module(f"namesrv_stream.{module_name}")
            before.append((module, name, getattr(module, name)))
            setattr(module, name, replacement)
        yield
    finally:
        for module, name, value in reversed(before):
            setattr(module, name, value)
        logging.disable(level)


class NoHttpServer:
    """Takes the place of the HTTP port."""

    address = "none"

    def __init__(self, bound: SimSocket, sources: Any) -> None:
        self.feed = sources.feed

    async def run(self) -> None:
        pass

    def stop(self) -> None:
        self.feed.close()


class SmallKnownAnswers(KnownAnswers):
    """A server's known answers. They are few, so that new ones displace old ones.

    Attributes:
        drops: How often a change has dropped answers.
    """

    def __init__(self) -> None:
        super().__init__(max_bytes=60_000)
        self.drops = 0

    def forget(self, names: Collection[str] | None) -> None:
        self.drops += 1
        super().forget(names)


class SimIdentityFile:
    """The identity of a server, which survives its restarts."""

    def __init__(self, server_id: str) -> None:
        self.server_id = server_id
        self._epoch = 0

    def begin_epoch(self, now_ms: int, known_epoch: int) -> Identity:
        self._epoch = max(now_ms, self._epoch + 1, known_epoch + 1)
        return Identity(self.server_id, self._epoch)


def settings_of(server_id: str, host: str, changes: dict[str, str]) -> Settings:
    """Return settings: the defaults, except for what the simulation needs and ``changes``."""
    wanted = {
        "data.dir": f"{_DATA}/{server_id}",
        "data.tables": f"{_DATA}/tables",
        "kafka.bootstrap_servers": "kafka:9092",
        "server.server_id": "of-the-job" if server_id == "job" else server_id,  # servers may not have its id
        "remoting.listen_host": host,
        "remoting.native_lane": "off",
        "admin.trusted_networks": "10.0.0.0/8",
        "history.enabled": "false",
    }
    flags = [Flag("simulation", name, value) for name, value in (wanted | changes).items()]
    return load_settings(environ={}, flags=flags).settings


def start_server(world: "World", process: Process, settings: Settings, identity_file: SimIdentityFile) -> None:
    main = importlib.import_module("namesrv_stream.server.main")

    async def run() -> int:
        try:
            code: int = await main._Server(settings, identity_file).run()
        except BaseExceptionGroup as failures:
            return exit_code_of(failures)
        return code

    start_loop(world.scheduler, world.network, process, run)


def start_job(world: "World", process: Process, settings: Settings) -> None:
    route_job = importlib.import_module("namesrv_stream.streaming.route_table.route_job")

    def run() -> None:
        try:
            job = route_job._Job(settings)
            code = job.run()
            process.memory["error"] = job._failure
        except Exception as error:
            process.memory["error"] = error
            code = getattr(error, "exit_code", 1)
        world.scheduler.soon(None, lambda: process.kill(code))

    world.scheduler.start_thread(process, "main", run)


Starter = Callable[[], None]
