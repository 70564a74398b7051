"""Listening sockets, and the addresses by which others reach them."""

import socket
from collections.abc import Sequence
from typing import Final

from namesrv_stream.ports import listen_fault, reachable_host

#: Source: rocketmq 5.3.3, NettyServerConfig.serverSocketBacklog.
BACKLOG: Final = 1024


def bind(host: str, port: int, section: str) -> socket.socket:
    """A listening socket, so that a taken port is told before anything else happens.

    Raises:
        ConfigError: The address cannot be bound; names the key in this section.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(BACKLOG)  # binding alone does not collide with another that is only bound
    except OSError as error:
        bound.close()
        raise listen_fault(error, host, port, section) from error
    return bound


def address(bound: socket.socket) -> str:
    """Where a socket listens, ``host:port``: 0.0.0.0 or [::] where that is every address of this machine."""
    return _addr(*bound.getsockname()[:2])


class NameServerAddrs:
    """What clients are told when they ask over HTTP for their name servers."""

    def __init__(self, configured: Sequence[str], listen_host: str, listen_port: int) -> None:
        """Knows the configured list, and where this server listens for remoting if that is empty."""
        self._configured = ";".join(configured)
        self._listen_host = listen_host
        self._listen_port = listen_port

    def reached_by(self, host: str) -> str:
        """The list for a client that asked this server at its address ``host``, ``;``-separated.

        Where nothing is configured it is this server: where it listens on every address, at the one that the client
        has just reached it by, which is the only one known to work for that client.
        """
        if self._configured:
            return self._configured
        own = self._listen_host
        host = host.removeprefix("::ffff:")  # an IPv4 client of an IPv6 socket
        if own == "::" or (own == "0.0.0.0" and ":" not in host):
            own = host
        return _addr(reachable_host(own), self._listen_port)


def _addr(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
