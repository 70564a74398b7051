"""What a connection tells whoever keeps all of them."""

from typing import Protocol, TypeVar

from namesrv_stream.errors import RemotingError

C = TypeVar("C", contravariant=True)


class ConnectionOwner(Protocol[C]):
    """Who keeps the connections: told of each one's begin and end, and of peers that break the protocol."""

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
