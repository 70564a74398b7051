"""Clients outside a network reach a broker through a forwarder, whose address they receive from an address view."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from namesrv_stream.ports import choose_port
from namesrv_stream.route.address_views import VIEWS_NAMESPACE
from tests.support.processes import free_port, wait_until
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

HOST = "127.0.0.2"
SETTLE_S = 60.0


class Forwarder:
    """Forwards the connections to a port of ``HOST`` to another address; a context manager.

    Attributes:
        connections: Number of connections that were forwarded.
    """

    def __init__(self, port: int, target: str) -> None:
        host, _, target_port = target.rpartition(":")
        self.addr = f"{HOST}:{port}"
        self.connections = 0
        self._target = host, int(target_port)
        self._listener = socket.create_server((HOST, port))
        self._open: list[socket.socket] = []

    def __enter__(self) -> "Forwarder":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the port and all connections."""
        for sock in (self._listener, *self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self.connections += 1
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@dataclass(frozen=True, slots=True)
class Outside:
    """A broker that clients outside reach through a forwarder, and their listener.

    Attributes:
        name_server: The listener for clients outside.
        inner_name_server: The same server's port for everyone else.
        server: That server, which shares its state with the stack.
    """

    broker: Broker
    forwarder: Forwarder
    name_server: str
    inner_name_server: str
    server: SecondServer


@contextmanager
def outside_network(stack: Stack, mqadmin: Mqadmin, folder: Path, topic: str) -> Iterator[Outside]:
    """Start a broker with a topic, a forwarder, and a second server with a listener, and set the view."""
    port = free_port()
    listener = f"127.0.0.1:{port}"
    view_file = folder / "lan.toml"
    view_file.write_text('networks = ["192.0.2.0/24"]\n[[mappings]]\nto = "{host}:{port}"\n')
    stack.wait_job()  # the second server learns the broker and the view from the tables
    with (
        SecondServer(
            folder / "data",
            stack,
            "outside",
            remoting__view_listeners=f"outside:{port}",
            remoting__view_files=view_file,
        ) as server,
        Broker(folder, stack.remoting, name="broker-outside") as broker,
        Forwarder(choose_port(HOST), broker.addr) as forwarder,
    ):
        outer_port = forwarder.addr.rpartition(":")[2]
        mappings = [{"broker_name": "*-outside", "to": f"{HOST}:{{{outer_port}+id}}"}]
        document = orjson.dumps({"listeners": ["outside"], "unmapped": "omit", "mappings": mappings}).decode()
        view = ("-s", VIEWS_NAMESPACE, "-k", "outside", "-v", document)
        assert "success" in mqadmin.run("updateKvConfig", "-n", stack.remoting, *view)
        mqadmin.create_topic(stack.remoting, broker.addr, topic)
        wait_until(
            lambda: addrs(mqadmin, listener, topic) == [forwarder.addr],
            SETTLE_S,
            "clients outside receive the forwarder's address",
        )
        try:
            yield Outside(broker, forwarder, listener, server.remoting, server)
        finally:
            mqadmin.run("deleteKvConfig", "-n", stack.remoting, "-s", VIEWS_NAMESPACE, "-k", "outside")


def addrs(mqadmin: Mqadmin, name_server: str, topic: str) -> list[str]:
    """Return the addresses in the route of a topic."""
    route = mqadmin.topic_route(name_server, topic) or {"brokerDatas": []}
    return [addr for data in route["brokerDatas"] for addr in data["brokerAddrs"].values()]
