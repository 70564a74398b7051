"""Brokers that send requests only on command, so that a test can simulate frozen and dead brokers."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from tests.support.name_server import a_body, a_broker_header, a_registration_request
from tests.support.remoting_client import RemotingClient

_ANSWER_S = 30.0  # the machine may be busy


class ScriptedBrokers:
    """Some brokers, each with a connection to each name server; a context manager that closes the connections.

    Args:
        cluster: Cluster of all brokers; their names are CLUSTER-0, CLUSTER-1, …
        count: Number of brokers.
        addrs: Name servers, ``host:port``.
    """

    def __init__(self, cluster: str, count: int, addrs: Iterable[str]) -> None:
        addrs = list(addrs)
        self.cluster = cluster
        self.count = count
        self._connections = [[RemotingClient(addr, _ANSWER_S) for addr in addrs] for _ in range(count)]

    def register(self, *numbers: int, version: int = 1) -> None:
        """Register some brokers, by default all, at each name server; another ``version`` changes the registration."""
        for number in numbers or range(self.count):
            name, addr = f"{self.cluster}-{number}", _addr(number)
            body = a_body(counter=version)
            self._send(number, a_registration_request(addr, body=body, brokerName=name, clusterName=self.cluster))

    def unregister(self) -> None:
        """Unregister all brokers at each name server."""
        for number in range(self.count):
            name = f"{self.cluster}-{number}"
            header = a_broker_header(_addr(number), brokerName=name, clusterName=self.cluster)
            self._send(number, RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=header))

    def _send(self, number: int, request: RemotingCommand) -> None:
        for connection in self._connections[number]:
            answer = connection.ask(request.code, request.ext_fields, request.body or b"")
            assert answer.code == ResponseCode.SUCCESS, answer

    def close(self) -> None:
        """Close all connections, as if all brokers had been killed."""
        for connections in self._connections:
            for connection in connections:
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()


def _addr(number: int) -> str:
    return f"127.0.0.1:{number + 1}"
