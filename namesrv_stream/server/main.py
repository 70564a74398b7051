"""`serve`: opens the tables, binds the ports, talks to Kafka, answers until told to stop."""

import asyncio
import gc
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from typing import Any, Final

import uvloop

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.kafka import ENVELOPE_BYTES, ensure_topics, producer_config
from namesrv_stream.logs import progress
from namesrv_stream.ports import reachable_host
from namesrv_stream.processor.name_server import NameServer, Options
from namesrv_stream.processor.prepared import PreparedAnswers
from namesrv_stream.processor.route_answers import RouteAnswers
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.events import Origin
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view import RouteView
from namesrv_stream.run_files import write_run_file
from namesrv_stream.server.connection import RemotingConnection
from namesrv_stream.server.connections import Connections
from namesrv_stream.server.failures import exit_code_of
from namesrv_stream.server.gateway import Gateway, GatewayLimits
from namesrv_stream.server.http import HttpServer
from namesrv_stream.server.identity import IdentityFile
from namesrv_stream.server.publisher import KafkaPublisher
from namesrv_stream.server.served_view import ServedView
from namesrv_stream.settings import Settings
from namesrv_stream.snapshot import Snapshot, SnapshotFollower, load_snapshot

logger = logging.getLogger(__name__)

#: Source: rocketmq 5.3.3, NettyServerConfig.serverSocketBacklog.
_BACKLOG: Final = 1024
_KAFKA_RETRY_S: Final = 1.0
#: Files beside connections: listeners, Kafka, tables, logs, libraries.
_OTHER_FILES: Final = 512
#: For the follower to finish what it is reading; its thread does not keep the process.
_FOLLOWER_STOP_S: Final = 1.0


def serve(settings: Settings) -> int:
    """Run the server until SIGTERM or SIGINT; blocks.

    Raises:
        ConfigError: A port is taken, or the data directory cannot be used.
        KafkaUnreachable: No Kafka, and no tables from before to answer from.
    """
    sys.meta_path.insert(0, _WithoutPandas())
    _allow_open_files(settings.remoting.max_connections)
    identity_file = IdentityFile(settings.data.server_dir)
    try:
        return uvloop.run(_Server(settings, identity_file).run())
    except BaseExceptionGroup as failures:
        return exit_code_of(failures)
    finally:
        identity_file.close()


def _allow_open_files(connections: int) -> None:
    """Raise the soft limit of open files, often 1,024, as far as the connections need and the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        logger.warning("open files are limited to %d, fewer than remoting.max_connections=%d", hard, connections)
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _WithoutPandas(MetaPathFinder):
    """Hides pandas from this process: pyarrow imports it, if it can, with the first array it makes, for 45 MB."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("the server does without pandas", name=fullname)


class _Server:
    def __init__(self, settings: Settings, identity_file: IdentityFile) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._identity = identity_file.begin_epoch(settings.server.server_id, self._clock.now_ms())
        self._connections = Connections(settings.remoting.max_connections, settings.remoting.idle_timeout_ms)
        self._prepared = PreparedAnswers()

    async def run(self) -> int:
        settings = self._settings
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        snapshot = await asyncio.to_thread(load_snapshot, settings.data.tables_dir)
        progress(f"tables opened: {len(snapshot.table.groups)} broker names")
        has_kafka = await self._ensure_topics(is_needed=not snapshot.table.groups)

        view = RouteView(snapshot.table, snapshot.next_offsets)
        options = Options(full_registration_interval_ms=settings.server.full_registration_interval_ms)
        answers = RouteAnswers(view, support_acting_master=options.support_acting_master)
        name_server = NameServer(view, answers, options)
        served = ServedView(name_server, self._prepared, self._identity.server_id)
        gateway = self._gateway(served)
        # What was loaded lives as long as the process: keep the collector from walking it again and again.
        gc.collect()
        gc.freeze()

        listener = _bind(settings.remoting.listen_host, settings.remoting.listen_port, "remoting.listen_port")
        http = HttpServer(
            _bind(settings.http.listen_host, settings.http.listen_port, "http.listen_port"),
            name_server,
            gateway,
            self._connections,
            nsaddr=_address(listener),
        )
        origin = Origin(self._identity.server_id, self._identity.server_epoch)

        def connect() -> RemotingConnection:
            return RemotingConnection(
                self._connections.next_id(),
                name_server,
                self._prepared,
                gateway,
                self._connections,
                self._clock,
                settings.remoting.max_frame_bytes,
                settings.remoting.write_buffer_bytes,
                origin,
            )

        remoting = await loop.create_server(connect, sock=listener, backlog=_BACKLOG)
        follower = self._follow(snapshot, served, loop)
        try:
            async with asyncio.TaskGroup() as tasks:
                beat = tasks.create_task(self._beat(gateway), name="beat")
                serving = tasks.create_task(http.run(), name="http")
                talk = tasks.create_task(self._talk(gateway, loop, has_kafka), name="talk")
                ready = tasks.create_task(self._tell_ready(gateway, http, listener), name="ready")
                await stop.wait()
                logger.info("stopping connections=%d", len(self._connections))
                for task in (beat, talk, ready):
                    task.cancel()
                remoting.close()
                # Closed before the last flush: nobody is told SUCCESS for what will not be logged.
                gateway.begin_stop()
                self._connections.close_all("the server stops")
                await gateway.stop(settings.server.stop_timeout_ms / 1000)
                http.stop()
                await serving
        finally:
            gateway.begin_stop()
            remoting.close()
            _stop_follower(follower)
        return 0

    async def _ensure_topics(self, *, is_needed: bool) -> bool:
        try:
            await asyncio.to_thread(ensure_topics, self._settings)
        except KafkaUnreachable:
            if is_needed:
                raise
            logger.warning("Kafka does not answer: serving the tables from before, registrations stay in memory")
            return False
        return True

    def _gateway(self, served: ServedView) -> Gateway:
        settings = self._settings
        limits = GatewayLimits(
            settings.server.publish_queue_records,
            settings.server.publish_queue_bytes,
            settings.kafka.max_message_bytes - ENVELOPE_BYTES,
            settings.liveness.max_gap_ms,
        )
        return Gateway(served, self._identity, settings.kafka.partitions, limits, self._clock)

    def _follow(self, snapshot: Snapshot, served: ServedView, loop: asyncio.AbstractEventLoop) -> SnapshotFollower:
        def on_commit(changes: list[RouteChange], next_offsets: Mapping[int, int]) -> None:
            loop.call_soon_threadsafe(served.committed, changes, next_offsets)

        def on_reload(table: RouteTable, next_offsets: Mapping[int, int]) -> None:
            loop.call_soon_threadsafe(served.reloaded, table, next_offsets)

        follower = SnapshotFollower(
            self._settings.data.tables_dir,
            self._settings.snapshot.poll_interval_ms,
            on_reload,
            on_commit,
            known=snapshot,
        )
        follower.start()
        return follower

    async def _talk(self, gateway: Gateway, loop: asyncio.AbstractEventLoop, has_kafka: bool) -> None:
        while not has_kafka:
            await asyncio.sleep(_KAFKA_RETRY_S)
            has_kafka = await self._ensure_topics(is_needed=False)
        config: dict[str, Any] = producer_config(self._settings)
        topic = self._settings.kafka.broker_events_topic
        gateway.attach(KafkaPublisher(loop, config, topic, gateway.opened, gateway.acked, gateway.failed))

    async def _beat(self, gateway: Gateway) -> None:
        interval_s = self._settings.liveness.tick_interval_ms / 1000
        while True:
            gateway.beat()
            self._connections.close_idle(gateway.observed_ms)
            await asyncio.sleep(interval_s)

    async def _tell_ready(self, gateway: Gateway, http: HttpServer, listener: socket.socket) -> None:
        await gateway.talking.wait()
        facts: dict[str, str | int] = {"remoting": _address(listener), "http": http.address}
        write_run_file(self._settings.data.run_dir / "serve.json", facts)
        logger.info("listening remoting=%s http=%s server_id=%s", *facts.values(), self._identity.server_id)


def _bind(host: str, port: int, key: str) -> socket.socket:
    """A listening socket, so that a taken port is told before anything else happens.

    Raises:
        ConfigError: The address cannot be bound; names the key.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(_BACKLOG)  # binding alone does not collide with another that is only bound
    except OSError as error:
        bound.close()
        raise ConfigError("settings", key, f"{host}:{port} cannot be listened on: {error.strerror}") from error
    return bound


def _stop_follower(follower: SnapshotFollower) -> None:
    # It may hang in a read of the tables, which must not keep the server from ending.
    stopping = threading.Thread(target=follower.stop, name="stop-follower", daemon=True)
    stopping.start()
    stopping.join(_FOLLOWER_STOP_S)


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"{reachable_host(host)}:{port}"
