"""Brokers that send requests only when the test says so, which makes frozen and dead brokers easy to simulate."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from namesrv_stream.remoting.codes import RequestCode, ResponseCode
from namesrv_stream.remoting.command import RemotingCommand
from tests.support.name_server import a_body, a_broker_header, a_registration_request
from tests.support.remoting_client import RemotingClient

_ANSWER_S = 30.0  # other tests may be using the machine


class QuietBrokers:
    """Broker processes with a connection of their own to each name server; a context manager that closes them.

    Args:
        cluster: Of all of them; they are called CLUSTER-0, CLUSTER-1, …
        count: How many.
        addrs: Name servers, ``host:port``.
    """

    def __init__(self, cluster: str, count: int, addrs: Iterable[str]) -> None:
        addrs = list(addrs)
        self.cluster = cluster
        self.count = count
        self._connections = [[RemotingClient(addr, _ANSWER_S) for addr in addrs] for _ in range(count)]

    def heard(self, *numbers: int, version: int = 1) -> None:
        """Some of them, or all, register at each name server; another ``version`` is another registration."""
        for number in numbers or range(self.count):
            name, addr = f"{self.cluster}-{number}", _addr(number)
            body = a_body(counter=version)
            self._tell(number, a_registration_request(addr, body=body, brokerName=name, clusterName=self.cluster))

    def leave(self) -> None:
        """All brokers unregister at each name server."""
        for number in range(self.count):
            name = f"{self.cluster}-{number}"
            header = a_broker_header(_addr(number), brokerName=name, clusterName=self.cluster)
            self._tell(number, RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=header))

    def _tell(self, number: int, request: RemotingCommand) -> None:
        for connection in self._connections[number]:
            answer = connection.ask(request.code, request.ext_fields, request.body or b"")
            assert answer.code == ResponseCode.SUCCESS, answer

    def close(self) -> None:
        """Close all connections, as if all had died."""
        for connections in self._connections:
            for connection in connections:
                connection.close()

    def __enter__(self) -> Self:
        """Nothing: they are connected already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()


def _addr(number: int) -> str:
    return f"127.0.0.1:{number + 1}"
