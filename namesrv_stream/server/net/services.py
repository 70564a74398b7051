"""What all connections of a server share."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from namesrv_stream.clock import Clock
from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.events import Origin
from namesrv_stream.server.gateway import Gateway
from namesrv_stream.server.native.lane import NativeLane
from namesrv_stream.server.net.large_requests import LargeRequests
from namesrv_stream.server.net.response_cache import ResponseCache
from namesrv_stream.server.request_figures import RequestFigures
from namesrv_stream.server.tls import ServerTls
from namesrv_stream.settings import RemotingSettings

C = TypeVar("C", contravariant=True)


@dataclass(frozen=True, slots=True)
class Services:
    """Of one server.

    Attributes:
        name_server: Answers requests.
        responses: Answers those that were answered before.
        gateway: Takes what is accepted.
        large_requests: Orders the large ones.
        lane: Answers route queries without the interpreter; None where there is none.
        origin: Of this start of the server.
    """

    name_server: NameServer
    responses: ResponseCache
    gateway: Gateway
    large_requests: LargeRequests
    lane: NativeLane | None
    tls: ServerTls
    origin: Origin
    limits: RemotingSettings
    figures: RequestFigures
    clock: Clock


class ConnectionOwner(Protocol[C]):
    """Keeps the connections."""

    def opened(self, connection: C) -> bool:
        """Whether the connection may stay."""

    def closed(self, connection: C) -> None: ...

    def broken(self, connection: C, error: RemotingError) -> None:
        """Its peer broke the protocol."""

    def failed(self, connection: C, code: int) -> None:
        """A request failed by a fault of ours, the exception that is being handled."""

    def denied(self, connection: C, reason: str) -> None:
        """Its peer may not make the request that it sent; ``reason`` is for the log."""

    def holds(self, connection: C, size: int, *, is_new: bool) -> None:
        """It holds ``size`` bytes of a frame, or of what comes before frames; ``is_new`` where that just began."""

    def stalled(self, connection: C) -> None:
        """Its peer does not read its answers; ``flows`` once it does."""

    def flows(self, connection: C) -> None: ...
