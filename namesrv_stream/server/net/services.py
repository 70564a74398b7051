"""What all connections of a server share."""

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
    """Of one server.

    Attributes:
        name_server: Answers requests.
        responses: Answers those that were answered before.
        gateway: Takes what is accepted.
        connections: Admits connections, and closes those that do not move.
        large_requests: Orders the large requests.
        tls: Speaks TLS where a peer does.
        origin: Of this start of the server.
        figures: Counts answers.
        clock: For the processors.
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
