"""The services that all connections of a server share."""

from dataclasses import dataclass

from namesrv_stream.clock import Clock
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.events import Origin
from namesrv_stream.server.gateway.gateway import Gateway
from namesrv_stream.server.metrics.requests import RequestMetrics
from namesrv_stream.server.net.connections import Connections
from namesrv_stream.server.net.large_requests import LargeRequests
from namesrv_stream.server.net.response_cache import ResponseCache
from namesrv_stream.server.tls import ServerTls


@dataclass(frozen=True, slots=True)
class Services:
    """The services of one server.

    Attributes:
        name_server: State for the processors.
        responses: Cache of responses.
        gateway: Receives the accepted events.
        connections: Admits connections, and closes those without progress.
        large_requests: Schedules the large requests.
        tls: TLS for peers that use it.
        origin: Id and epoch of this server, without a connection.
        figures: Metrics of the answers.
        clock: Clock for the processors.
    """

    name_server: NameServer
    responses: ResponseCache
    gateway: Gateway
    connections: Connections
    large_requests: LargeRequests
    tls: ServerTls
    origin: Origin
    figures: RequestMetrics
    clock: Clock
