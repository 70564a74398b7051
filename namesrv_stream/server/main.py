"""`serve`: opens the tables, binds the ports, connects to Kafka, and answers until a signal stops it."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import uvloop

from namesrv_stream import watchdog
from namesrv_stream.clock import SystemClock, until_multiple_ms
from namesrv_stream.kafka import producer_config
from namesrv_stream.logs import progress, safe
from namesrv_stream.ports import VIEW_LISTENERS
from namesrv_stream.processes import announce_start, locked, write_run_file
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.core import Core, Ports, build_core
from namesrv_stream.server.gateway.gateway import Gateway
from namesrv_stream.server.gateway.publisher import KafkaPublisher
from namesrv_stream.server.http.console.console_page import Sources
from namesrv_stream.server.http.http_server import HttpServer
from namesrv_stream.server.http.routes_page import PastRoutes
from namesrv_stream.server.native.lane import open_lane
from namesrv_stream.server.server_metrics import ServerMetrics
from namesrv_stream.server.start.identity import Identity, IdentityFile, LogGuard, watch_for_rival
from namesrv_stream.server.start.opening import (
    first_snapshot,
    has_topics,
    open_log,
)
from namesrv_stream.server.start.process import (
    BACKLOG,
    NameServerAddrs,
    address,
    bind,
    exit_code_of,
    keep_all,
    prepare_process,
    read_views,
    require_files,
    return_free_memory,
)
from namesrv_stream.server.view.client_views import set_configured_views
from namesrv_stream.server.view.commit_applier import (
    CommitApplier,
    HistoryAge,
    search_missed_tables,
    watch_missed_tables,
)
from namesrv_stream.server.view.fleet import Fleet
from namesrv_stream.server.view.served_state import ServedState
from namesrv_stream.settings import Settings
from namesrv_stream.tables.job_commits import log_held
from namesrv_stream.tables.storage import tables_of

logger = logging.getLogger(__name__)

Parts = Mapping[str, Coroutine[Any, Any, None]]

_RUN_FILE: Final = "serve.json"
_REFUSAL_POLL_S: Final = 0.2
_KAFKA_RETRY_S: Final = 1.0
#: Three seconds in all. All servers read the job's commit at the same time: usually within 0.3 s, on a busy machine
#: within 2 s.
_LEAVE_LIST_POLLS: Final = 150
_LEAVE_LIST_POLL_S: Final = 0.02


def serve(settings: Settings) -> int:
    """Run the server until SIGTERM or SIGINT; blocks.

    Raises:
        ConfigError: A file in the settings or the data directory cannot be used, or a port is in use.
        KafkaUnreachable: Kafka does not answer, and there are no tables to answer from.
        DuplicateServerId: Another server with the same id is running.
    """
    require_files(settings)
    prepare_process(settings.remoting.max_connections + settings.http.max_connections)
    folder = settings.data.server_dir
    with locked(folder / "lock", "data.dir", "another server runs on this directory"):
        announce_start(settings.data.run_dir / _RUN_FILE)
        try:
            return uvloop.run(_Server(settings, IdentityFile(folder, settings.server.server_id)).run())
        except BaseExceptionGroup as failures:
            return exit_code_of(failures)


class _Server:
    def __init__(self, settings: Settings, identity_file: IdentityFile) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._identity_file = identity_file
        self._supervision = watchdog.supervision
        self._lane, self._lane_status = open_lane(settings.remoting)
        level = logging.WARNING if self._lane_status.is_fault else logging.INFO
        logger.log(level, "native lane %s", self._lane_status.text)

    async def run(self) -> int:
        settings = self._settings
        loop, stop = asyncio.get_running_loop(), _stop_signal()
        snapshot = await first_snapshot(tables_of(settings), stop)
        if snapshot is None:
            return 0
        progress(f"tables opened: {len(snapshot.table.groups)} broker names")
        view = RouteView(snapshot.table, snapshot.next_offsets, partitions=settings.kafka.partitions)
        folded = FoldedLog(snapshot.topic_id, snapshot.progress)
        server_id = self._identity_file.server_id
        has_kafka, known_epoch = await open_log(settings, server_id, view, folded, self._clock)
        identity = self._identity_file.begin_epoch(self._clock.now_ms(), known_epoch)
        views = read_views(settings)
        listener = bind(settings.remoting.listen_host, settings.remoting.listen_port, "remoting")
        self._report_alive()  # brokers can connect from now on, so a hang would delay them
        view_listeners = {
            name: bind(settings.remoting.listen_host, port, VIEW_LISTENERS)
            for name, port in settings.remoting.port_of_view_listener.items()
        }
        ports = Ports(self._clock, identity, self._lane, listener.getsockname()[1])
        core = build_core(settings, view, ports)
        keep_all()

        log_held(view.table.held)
        applier = CommitApplier(settings, snapshot, core, self._clock)
        await search_missed_tables(settings, applier.status)
        http, metrics = self._http_server(identity, core, view, applier, listener)
        remoting = [
            await loop.create_server(partial(core.new_connection, name), sock=sock, backlog=BACKLOG)
            for name, sock in {"": listener, **view_listeners}.items()
        ]
        if self._lane is not None:
            self._lane.start(loop)
        applier.start(loop)
        guard = LogGuard(settings, applier.folded_log, applier.log_refused)
        parts = {
            "beat": self._beat(core, metrics),
            "follow": applier.run(),
            "tables": watch_missed_tables(settings, applier.status),
            "kafka": self._connect_kafka(core.gateway, guard, has_kafka),
            "ready": self._announce(core.gateway, guard, http, listener, view_listeners),
            "kv-log": self._log_kv(core.name_server),
            "notify": core.notifier.run(),
            "rival": watch_for_rival(settings, identity),
            "certificate": core.services.tls.watch(),
            "unmapped": core.unmapped.watch(),
            "memory": return_free_memory(),
            "views": set_configured_views(views, core.name_server, core.gateway, core.services.origin),
        }
        try:
            await self._run_parts(parts, remoting, http, core, stop)
        finally:
            core.gateway.begin_stop()
            for server in remoting:
                server.close()
            applier.stop()
            core.services.decoder.stop()
            if self._lane is not None:
                self._lane.stop(loop)
        return 0

    def _http_server(
        self, identity: Identity, core: Core, view: RouteView, applier: CommitApplier, listener: socket.socket
    ) -> tuple[HttpServer, ServerMetrics]:
        """Bind the HTTP port. Return the server of this port, and the metrics that it serves."""
        settings = self._settings
        fleet = Fleet(view, core.gateway, applier.recent_events)
        history_age = HistoryAge(settings, self._clock)
        metrics = ServerMetrics(
            identity, core, fleet, applier.status, history_age, self._lane_status, self._supervision.restarts
        )
        sources = Sources(
            core.name_server,
            name_server_addrs=NameServerAddrs(settings.http.nsaddr, *listener.getsockname()[:2]),
            state=ServedState(identity, view, applier.status, settings.kafka.partitions),
            past_routes=PastRoutes(settings, self._clock),
            feed=applier.feed,
            recent_events=applier.recent_events,
            figures=metrics,
            tls=core.services.tls,
            clock=self._clock,
            settings=settings,
            peer_log=core.peer_log,
        )
        return HttpServer(bind(settings.http.listen_host, settings.http.listen_port, "http"), sources), metrics

    async def _run_parts(
        self, parts: Parts, remoting: Sequence[asyncio.Server], http: HttpServer, core: Core, stop: asyncio.Event
    ) -> None:
        """Run the tasks in ``parts`` and the listeners until ``stop`` is set; then stop all of them in order."""
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(http.run(), name="http")
            running = [tasks.create_task(part, name=name) for name, part in parts.items()]
            await stop.wait()
            logger.info("stopping connections=%d", len(core.connections))
            await self._leave_list(core)
            for server in remoting:
                server.close()
            # The gateway closes before the last flush, so that no peer receives SUCCESS for an unlogged event.
            core.gateway.begin_stop()
            await core.connections.close_all(self._settings.server.drain_timeout_ms / 1000)
            for task in running:
                task.cancel()
            self._supervision.end()  # no broker is connected any more
            await core.gateway.stop(self._settings.server.stop_timeout_ms / 1000)
            http.stop()
            await serving
            core.peer_log.end()

    async def _leave_list(self, core: Core) -> None:
        """Leave the list of name servers, and wait at most three seconds until a commit contains that."""
        core.gateway.leave_list()
        for _ in range(_LEAVE_LIST_POLLS):
            known = core.name_server.table.known_servers(self._settings.kafka.partitions)
            is_listed = any(s.is_listed and s.server_id == core.gateway.server_id for s in known)
            if not (is_listed and core.gateway.is_connected):
                return
            await asyncio.sleep(_LEAVE_LIST_POLL_S)

    async def _connect_kafka(self, gateway: Gateway, guard: LogGuard, has_kafka: bool) -> None:
        if not has_kafka:
            gateway.kafka_is_away("Kafka was not usable when this server started; the server's log says why")
        while not has_kafka:
            await asyncio.sleep(_KAFKA_RETRY_S)
            has_kafka = await has_topics(self._settings)
        config: dict[str, Any] = producer_config(self._settings)
        topic = self._settings.kafka.broker_events_topic
        gateway.attach(partial(KafkaPublisher, asyncio.get_running_loop(), config, topic, guard.check))

    def _report_alive(self) -> None:
        self._supervision.beat(self._settings.server.hang_timeout_ms, self._settings.logs.format)

    async def _beat(self, core: Core, metrics: ServerMetrics) -> None:
        interval_ms = self._settings.liveness.tick_interval_ms
        while True:
            self._report_alive()
            core.beat()
            # All servers and the job use the same moments, so that the job folds all ticks in one batch. The extra
            # millisecond prevents a second wait for the same moment, because a timer may fire a millisecond early.
            began_ms, wait_ms = self._clock.monotonic_ms(), until_multiple_ms(self._clock, interval_ms) + 1
            await asyncio.sleep(wait_ms / 1000)
            metrics.beat_came_late(max(0, self._clock.monotonic_ms() - began_ms - wait_ms))

    async def _log_kv(self, name_server: NameServer) -> None:
        while True:
            log_kv_table(name_server.table.kv)
            await asyncio.sleep(self._settings.name_server.kv_log_interval_ms / 1000)

    async def _announce(
        self,
        gateway: Gateway,
        guard: LogGuard,
        http: HttpServer,
        listener: socket.socket,
        view_listeners: Mapping[str, socket.socket],
    ) -> None:
        # A server also answers if its log belongs to other tables; /readyz states why it is not ready.
        while not (gateway.connected.is_set() or guard.has_refused):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gateway.connected.wait(), _REFUSAL_POLL_S)
        addresses: dict[str, str | int] = {"remoting": address(listener), "http": http.address}
        of_views = {f"remoting.{name}": address(sock) for name, sock in view_listeners.items()}
        write_run_file(self._settings.data.run_dir / _RUN_FILE, addresses | of_views)
        logger.info("listening remoting=%s http=%s server_id=%s", *addresses.values(), gateway.server_id)
        for name, sock in view_listeners.items():
            logger.info("listening for clients of address views listener=%s remoting=%s", name, address(sock))


def _stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


#: Maximum number of entries that are logged at a time.
_MAX_ENTRIES: Final = 1_000


def log_kv_table(kv: Mapping[str, Mapping[str, str]], max_entries: int = _MAX_ENTRIES) -> None:
    """Log a line with the table's size, then one line for each of the first entries; long values are truncated."""
    size = sum(len(entries) for entries in kv.values())
    logger.info("kv table namespaces=%d entries=%d", len(kv), size)
    entries = ((namespace, key, value) for namespace in sorted(kv) for key, value in sorted(kv[namespace].items()))
    for namespace, key, value in islice(entries, max_entries):
        logger.info("kv namespace=%s key=%s chars=%d value=%s", safe(namespace), safe(key), len(value), safe(value))
    if size > max_entries:
        logger.info("kv table has more entries, not printed count=%d", size - max_entries)
