"""`serve`: opens the tables, binds the ports, talks to Kafka, answers until told to stop."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

import uvloop

from namesrv_stream.clock import SystemClock, until_multiple_ms
from namesrv_stream.kafka import ENVELOPE_BYTES, producer_config
from namesrv_stream.logs import progress
from namesrv_stream.processor.name_server import Access, NameServer, Options
from namesrv_stream.route.events import Origin
from namesrv_stream.route.folded_log import FoldedLog
from namesrv_stream.route.view import RouteView
from namesrv_stream.run_files import write_run_file
from namesrv_stream.server.failures import exit_code_of
from namesrv_stream.server.first_snapshot import first_snapshot
from namesrv_stream.server.fleet import Fleet
from namesrv_stream.server.following import Following
from namesrv_stream.server.gateway import Gateway
from namesrv_stream.server.http.http_server import HttpServer
from namesrv_stream.server.http.sources import Sources
from namesrv_stream.server.identity import IdentityFile
from namesrv_stream.server.kv_log import log_kv_table
from namesrv_stream.server.listener import BACKLOG, NameServerAddrs, address, bind
from namesrv_stream.server.log_guard import LogGuard
from namesrv_stream.server.min_broker_notifier import MinBrokerNotifier
from namesrv_stream.server.native.lane import open_lane
from namesrv_stream.server.net.cached_answers import CachedRouteAnswers
from namesrv_stream.server.net.connection import RemotingConnection
from namesrv_stream.server.net.connections import Connections
from namesrv_stream.server.net.large_requests import LargeRequests
from namesrv_stream.server.net.response_cache import ResponseCache
from namesrv_stream.server.net.services import Services
from namesrv_stream.server.open_log import has_topics, open_log
from namesrv_stream.server.outbox import GatewayLimits
from namesrv_stream.server.past_routes import PastRoutes
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.process import keep_all, prepare_process
from namesrv_stream.server.publisher import KafkaPublisher
from namesrv_stream.server.request_figures import RequestFigures
from namesrv_stream.server.rival import watch_for_rival
from namesrv_stream.server.served_state import ServedState
from namesrv_stream.server.served_view import ServedView
from namesrv_stream.server.server_figures import ServerFigures
from namesrv_stream.server.tls import ServerTls, calls_context
from namesrv_stream.settings import Settings, read_accounts, rocketmq_config
from namesrv_stream.tables.change_log import log_held
from namesrv_stream.tables.storage import tables_of

logger = logging.getLogger(__name__)

_REFUSAL_POLL_S: Final = 0.2
_KAFKA_RETRY_S: Final = 1.0


def serve(settings: Settings) -> int:
    """Run the server until SIGTERM or SIGINT; blocks.

    Raises:
        ConfigError: A port is taken, or the data directory cannot be used.
        KafkaUnreachable: No Kafka, and no tables from before to answer from.
        DuplicateServerId: Another server with the same id is running.
    """
    prepare_process(settings.remoting.max_connections + settings.http.max_connections)
    identity_file = IdentityFile(settings.data.server_dir)
    try:
        return uvloop.run(_Server(settings, identity_file).run())
    except BaseExceptionGroup as failures:
        return exit_code_of(failures)
    finally:
        identity_file.close()


class _Server:
    def __init__(self, settings: Settings, identity_file: IdentityFile) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._identity = identity_file.begin_epoch(settings.server.server_id, self._clock.now_ms())
        self._peer_log = PeerLog()
        self._lane, self._lane_status = open_lane(settings.remoting)
        level = logging.WARNING if self._lane_status.is_fault else logging.INFO
        logger.log(level, "native lane %s", self._lane_status.text)
        self._connections = Connections(settings.remoting, self._peer_log, self._lane)
        self._tls = ServerTls(settings.tls, self._clock)
        if settings.tls.is_for_calls:
            calls_context(settings.tls)  # tells of files that cannot be used before anything else happens
        self._requests = RequestFigures(self._lane.answered if self._lane else None)
        self._access = _access(settings)

    async def run(self) -> int:
        settings = self._settings
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        snapshot = await first_snapshot(tables_of(settings), stop)
        if snapshot is None:
            return 0
        progress(f"tables opened: {len(snapshot.table.groups)} broker names")
        view = RouteView(snapshot.table, snapshot.next_offsets, partitions=settings.kafka.partitions)
        folded = FoldedLog(snapshot.topic_id, snapshot.progress)
        has_kafka = await open_log(settings, self._identity, view, folded, self._clock)
        listener = bind(settings.remoting.listen_host, settings.remoting.listen_port, "remoting")
        name_server = self._name_server(view, listener)
        notifier = MinBrokerNotifier(
            lambda: name_server.options.notify_min_broker_id_changed,
            own_port=listener.getsockname()[1],
            tls=partial(calls_context, settings.tls) if settings.tls.is_for_calls else None,
        )
        responses, large_requests = ResponseCache(self._lane), LargeRequests()
        gateway = self._gateway(name_server, responses, notifier)
        keep_all()

        state = ServedState(self._identity, name_server.view, settings.kafka.partitions, snapshot.version, self._clock)
        log_held(view.table.held)
        following = Following(settings, snapshot, gateway.view, state, gateway.last_heartbeats, self._clock)
        figures = ServerFigures(
            self._identity,
            Fleet(view, gateway, following.recent_events),
            gateway,
            self._connections,
            self._requests,
            following.figures,
            self._tls,
            settings.server.publish_queue_records,
            self._lane_status,
        )
        sources = Sources(
            name_server,
            name_server_addrs=NameServerAddrs(settings.http.nsaddr, *listener.getsockname()[:2]),
            state=state,
            past_routes=PastRoutes(settings, self._clock),
            feed=following.feed,
            recent_events=following.recent_events,
            figures=figures,
            tls=self._tls,
            clock=self._clock,
            settings=settings,
            peer_log=self._peer_log,
        )
        http = HttpServer(bind(settings.http.listen_host, settings.http.listen_port, "http"), sources)
        services = Services(
            name_server,
            responses,
            gateway,
            large_requests,
            self._lane,
            self._tls,
            Origin(self._identity.server_id, self._identity.server_epoch),
            settings.remoting,
            self._requests,
            self._clock,
        )
        connect = self._connect(services)
        remoting = await loop.create_server(connect, sock=listener, backlog=BACKLOG)
        if self._lane is not None:
            self._lane.start(loop)
        following.start(loop)
        guard = LogGuard(settings, following.folded_log)
        parts = {
            "beat": self._beat(gateway, figures),
            "follow": following.run(),
            "talk": self._talk(gateway, guard, has_kafka),
            "ready": self._tell_ready(gateway, guard, http, listener),
            "kv-log": self._log_kv(name_server),
            "notify": notifier.run(),
            "rival": watch_for_rival(settings, self._identity),
            "certificate": self._tls.watch(),
        }
        try:
            await self._run_parts(parts, remoting, http, gateway, stop)
        finally:
            gateway.begin_stop()
            remoting.close()
            following.stop()
            large_requests.stop()
            if self._lane is not None:
                self._lane.stop(loop)
        return 0

    async def _run_parts(
        self,
        parts: Mapping[str, Coroutine[Any, Any, None]],
        remoting: asyncio.Server,
        http: HttpServer,
        gateway: Gateway,
        stop: asyncio.Event,
    ) -> None:
        """Run the parts beside the two listeners until ``stop`` is set; then end all in order."""
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(http.run(), name="http")
            running = [tasks.create_task(part, name=name) for name, part in parts.items()]
            await stop.wait()
            logger.info("stopping connections=%d", len(self._connections))
            remoting.close()
            # Closed before the last flush: nobody is told SUCCESS for what will not be logged.
            gateway.begin_stop()
            await self._connections.close_all(self._settings.server.drain_timeout_ms / 1000)
            for task in running:
                task.cancel()
            await gateway.stop(self._settings.server.stop_timeout_ms / 1000)
            http.stop()
            await serving
            self._peer_log.end()

    def _name_server(self, view: RouteView, listener: socket.socket) -> NameServer:
        settings = self._settings
        switches = settings.name_server.model_dump(exclude={"kv_log_interval_ms"})
        options = Options(**switches, full_registration_interval_ms=settings.server.full_registration_interval_ms)
        return NameServer(
            view,
            CachedRouteAnswers(view, support_acting_master=options.support_acting_master),
            options,
            access=self._access,
            started_ms=self._clock.monotonic_ms(),
            config=rocketmq_config(settings) | {"listenPort": str(listener.getsockname()[1])},
        )

    def _connect(self, services: Services) -> Callable[[], RemotingConnection]:
        """What makes the connection of a peer that has just arrived."""
        return lambda: RemotingConnection(self._connections.next_id(), services, self._connections)

    def _gateway(self, name_server: NameServer, responses: ResponseCache, notifier: MinBrokerNotifier) -> Gateway:
        settings = self._settings
        served = ServedView(
            name_server,
            responses,
            self._identity,
            on_expired=self._connections.close_expired,
            on_group_changed=notifier.group_changed,
        )
        limits = GatewayLimits(
            settings.kafka.partitions,
            settings.server.publish_queue_records,
            settings.server.publish_queue_bytes,
            settings.kafka.max_message_bytes - ENVELOPE_BYTES,
            settings.liveness.max_gap_ms,
            settings.server.change_timeout_ms,
        )
        return Gateway(served, self._identity, limits, self._clock, self._peer_log)

    async def _talk(self, gateway: Gateway, guard: LogGuard, has_kafka: bool) -> None:
        if not has_kafka:
            gateway.kafka_is_away("it did not answer when this server started")
        while not has_kafka:
            await asyncio.sleep(_KAFKA_RETRY_S)
            has_kafka = await has_topics(self._settings)
        config: dict[str, Any] = producer_config(self._settings)
        topic = self._settings.kafka.broker_events_topic
        gateway.attach(partial(KafkaPublisher, asyncio.get_running_loop(), config, topic, guard))

    async def _beat(self, gateway: Gateway, figures: ServerFigures) -> None:
        interval_ms = self._settings.liveness.tick_interval_ms
        while True:
            gateway.beat()
            self._connections.beat(gateway.observed_ms)
            self._peer_log.beat(gateway.observed_ms)
            # At the moments at which all servers and the job tick: the job folds in one batch what comes at once.
            # Behind them, for a timer may come a millisecond early, and the same moment would be waited for again.
            began_ms, wait_ms = self._clock.monotonic_ms(), until_multiple_ms(self._clock, interval_ms) + 1
            await asyncio.sleep(wait_ms / 1000)
            figures.beat_came_late(max(0, self._clock.monotonic_ms() - began_ms - wait_ms))

    async def _log_kv(self, name_server: NameServer) -> None:
        while True:
            log_kv_table(name_server.table.kv)
            await asyncio.sleep(self._settings.name_server.kv_log_interval_ms / 1000)

    async def _tell_ready(self, gateway: Gateway, guard: LogGuard, http: HttpServer, listener: socket.socket) -> None:
        # A server whose log is another one answers all the same; /readyz says why it is not ready.
        while not (gateway.talking.is_set() or guard.has_refused):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gateway.talking.wait(), _REFUSAL_POLL_S)
        facts: dict[str, str | int] = {"remoting": address(listener), "http": http.address}
        write_run_file(self._settings.data.run_dir / "serve.json", facts)
        logger.info("listening remoting=%s http=%s server_id=%s", *facts.values(), self._identity.server_id)


def _access(settings: Settings) -> Access:
    admin = settings.admin
    accounts = read_accounts(admin)
    for warning in accounts.warnings:
        logger.warning("%s", warning)
    return Access(admin.trusted_networks, accounts.secrets, admin.enable_config_update, admin.broker_networks)
