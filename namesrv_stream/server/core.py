"""The core of a server: the components that answer requests and log their events, without listeners, tables and Kafka.

Production, tests and benchmarks build it with the same function.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.kafka import ENVELOPE_BYTES
from namesrv_stream.metrics import Counters
from namesrv_stream.processor.name_server import Access, NameServer, Options, networks_of
from namesrv_stream.route.event_json import MAX_ITEMS
from namesrv_stream.route.events import Origin
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.server.gateway.gateway import Gateway
from namesrv_stream.server.gateway.records import GatewayLimits
from namesrv_stream.server.min_broker_notifier import MinBrokerNotifier
from namesrv_stream.server.native.lane import Lane
from namesrv_stream.server.net.cached_answers import CachedRouteAnswers
from namesrv_stream.server.net.connection import RemotingConnection
from namesrv_stream.server.net.connections import Connections
from namesrv_stream.server.net.decoder import RegistrationDecoder
from namesrv_stream.server.net.long_answers import LongAnswers
from namesrv_stream.server.net.request_metrics import RequestMetrics
from namesrv_stream.server.net.response_cache import ResponseCache
from namesrv_stream.server.net.session import Services
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.start.identity import Identity
from namesrv_stream.server.start.process import advertised_address
from namesrv_stream.server.tls import ServerTls, calls_context
from namesrv_stream.server.turns import Queue, Turns
from namesrv_stream.server.view.client_views import UnmappedAddresses
from namesrv_stream.server.view.served_view import ServedView
from namesrv_stream.settings import Settings, read_accounts, rocketmq_config

logger = logging.getLogger(__name__)

#: The time that the server records for a topic's last query can be too early by at most this much.
ASKED_RESOLUTION_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Ports:
    """The environment of a core. When ``gather_items`` heartbeats are queued, they are published at once."""

    clock: Clock
    identity: Identity
    lane: Lane | None = None
    listen_port: int = 0
    decoder: RegistrationDecoder | None = None
    turns: Turns | None = None
    gather_items: int = MAX_ITEMS


class QueryMarks:
    """Lets the processor see, once per hour, every topic that clients ask for, although caches answer most queries.

    Cached answers leave no trace. So every hour all of them are dropped: the next query of each topic reaches the
    processor, which records the time, and its answer is cached again. That costs 10 µs per topic and hour. The recorded
    times of topics that have lost their route are dropped at the same time.
    """

    def __init__(self, server: NameServer, responses: ResponseCache, turns: Turns) -> None:
        self._server = server
        self._responses = responses
        self._turns = turns
        self._due_ms = 0

    def beat(self, observed_ms: int) -> None:
        if observed_ms < self._due_ms:
            return
        self._due_ms = observed_ms + ASKED_RESOLUTION_MS
        self._responses.clear()
        self._turns.run(self._drop_lost(), Queue.OTHERS)

    def _drop_lost(self) -> Iterator[None]:
        for topic in list(self._server.asked):
            if not self._server.table.names_offering(topic):
                self._server.asked.pop(topic, None)
            yield


@dataclass(frozen=True, slots=True)
class Core:
    """The components of one server. Only one event loop may use them."""

    name_server: NameServer
    view: ServedView
    gateway: Gateway
    connections: Connections
    services: Services
    notifier: MinBrokerNotifier
    peer_log: PeerLog
    queries: QueryMarks
    unmapped: UnmappedAddresses

    def new_connection(self, listener: str = "") -> RemotingConnection:
        """Return the protocol of a connection that a listener accepted; "" is the name of the main listener."""
        return RemotingConnection(self.connections.next_id(), self.services, listener)

    def beat(self) -> None:
        """Do the periodic work of all components; the caller calls this every tick interval."""
        self.gateway.beat()
        self.connections.beat(self.gateway.observed_ms)
        self.peer_log.beat(self.gateway.observed_ms)
        self.queries.beat(self.gateway.observed_ms)


def build_core(settings: Settings, view: RouteView, ports: Ports) -> Core:
    """Build a core that answers from ``view``.

    Raises:
        ConfigError: A file in the settings cannot be used.
    """
    counters = Counters()
    tls = ServerTls(settings.tls, counters, ports.clock)
    peer_log = PeerLog()
    name_server = _name_server(settings, view, ports)
    responses = ResponseCache(ports.lane)
    turns = ports.turns or Turns()
    connections = Connections(settings.remoting, peer_log, counters, turns, ports.lane)
    notifier = MinBrokerNotifier(
        lambda: name_server.options.notify_min_broker_id_changed,
        own_port=ports.listen_port,
        tls=partial(calls_context, settings.tls) if settings.tls.is_for_calls else None,
    )
    served = ServedView(
        name_server,
        responses,
        ports.identity,
        later=lambda steps: turns.run(steps, Queue.VITAL),
        on_expired=connections.broker_expired,
        on_group_changed=notifier.group_changed,
    )
    address, limits = advertised_address(settings.remoting, ports.listen_port), _gateway_limits(settings, ports)
    gateway = Gateway(served, ports.identity, limits, ports.clock, peer_log, turns, address)
    name_server.is_unbroken = gateway.is_unbroken
    services = Services(
        name_server=name_server,
        responses=responses,
        gateway=gateway,
        connections=connections,
        turns=turns,
        long_answers=LongAnswers(turns),
        decoder=ports.decoder or RegistrationDecoder(turns),
        tls=tls,
        origin=Origin(ports.identity.server_id, ports.identity.server_epoch),
        request_metrics=RequestMetrics(ports.lane.answered if ports.lane else None),
        counters=counters,
        clock=ports.clock,
    )
    queries = QueryMarks(name_server, responses, turns)
    unmapped = UnmappedAddresses(name_server, settings.remoting.port_of_view_listener)
    return Core(name_server, served, gateway, connections, services, notifier, peer_log, queries, unmapped)


def _gateway_limits(settings: Settings, ports: Ports) -> GatewayLimits:
    return GatewayLimits(
        settings.kafka.partitions,
        settings.server.publish_queue_records,
        settings.server.publish_queue_bytes,
        settings.kafka.max_message_bytes - ENVELOPE_BYTES,
        settings.liveness.max_gap_ms,
        settings.server.change_timeout_ms,
        ports.gather_items,
    )


def _name_server(settings: Settings, view: RouteView, ports: Ports) -> NameServer:
    switches, admin = settings.name_server.model_dump(exclude={"kv_log_interval_ms"}), settings.admin
    options = Options(**switches, full_registration_interval_ms=settings.server.full_registration_interval_ms)
    accounts = read_accounts(admin)
    for warning in accounts.warnings:
        logger.warning("%s", warning)
    access = Access(
        networks_of(admin.trusted_networks),
        accounts.secrets,
        admin.enable_config_update,
        networks_of(admin.broker_networks),
        networks_of(settings.remoting.proxy_networks),
    )
    return NameServer(
        view,
        CachedRouteAnswers(view, support_acting_master=options.support_acting_master),
        options,
        access=access,
        started_ms=ports.clock.monotonic_ms(),
        config=rocketmq_config(settings) | {"listenPort": str(ports.listen_port)},
    )
