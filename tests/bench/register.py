"""Registers fictitious brokers and topics with a name server, and keeps them alive.

``python -m tests.bench.register --help``
"""

import argparse
import signal
from dataclasses import fields
from types import TracebackType
from typing import Self

from tests.bench.frames import BROKER_HEARTBEAT, TIMEOUT_MS, registration, registration_body
from tests.bench.shape import Shape
from tests.support.remoting_client import RemotingClient

#: Well below the 120 s after which a name server closes an idle connection.
_HEARTBEAT_PERIOD_S = 20.0


class Brokers:
    """The brokers of a shape, each with a connection and a timeout of an hour; a context manager that registers them.

    Its end closes the connections, which removes the brokers from a name server.

    Args:
        namesrv_addr: ``host:port`` of one name server.
        shape: What to register.
        timeout_s: Seconds to wait for each answer.
    """

    def __init__(self, namesrv_addr: str, shape: Shape, timeout_s: float = 60) -> None:
        self._namesrv_addr = namesrv_addr
        self._shape = shape
        self._timeout_s = timeout_s
        self._clients: list[RemotingClient] = []

    def __enter__(self) -> Self:
        """Register all of them.

        Raises:
            AssertionError: The name server refused a broker.
        """
        bodies: dict[tuple[str, ...], bytes] = {}
        try:
            for broker in range(self._shape.brokers):
                self._clients.append(RemotingClient(self._namesrv_addr, self._timeout_s))
                topics = tuple(self._shape.topics_of(broker))
                if topics not in bodies:
                    bodies = {topics: registration_body(self._shape, topics)}
                self._clients[-1].send(registration(self._shape.identity_of(broker), bodies[topics]))
                answer = self._clients[-1].receive()
                assert answer.code == 0, f"{self._namesrv_addr} refused broker {broker}: {answer}"
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self._close()

    def beat(self) -> None:
        """Send a heartbeat of each broker, which also keeps its connection open; call it at least every 100 s.

        Raises:
            OSError: The name server closed a connection, or does not answer.
        """
        for broker, client in enumerate(self._clients):
            client.ask(BROKER_HEARTBEAT, self._shape.identity_of(broker) | {"heartbeatTimeoutMillis": str(TIMEOUT_MS)})

    def _close(self) -> None:
        for client in self._clients:
            client.close()


def add_shape(parser: argparse.ArgumentParser) -> None:
    """Add the options that change a shape; see ``Shape``."""
    for field in fields(Shape):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)


def shape_of(chosen: argparse.Namespace) -> Shape:
    """Return the shape that the options describe."""
    return Shape(**{field.name: getattr(chosen, field.name) for field in fields(Shape)})


def main() -> None:
    """Register the shape of the command line, and keep it alive until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("namesrv_addr", help="host:port")
    add_shape(parser)
    chosen = parser.parse_args()
    shape = shape_of(chosen)
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with Brokers(chosen.namesrv_addr, shape) as brokers:
        print(f"{shape.brokers} brokers, {shape.topics} topics on {shape.width} each: registered", flush=True)
        while signal.sigtimedwait(ends, _HEARTBEAT_PERIOD_S) is None:
            brokers.beat()


if __name__ == "__main__":
    main()
