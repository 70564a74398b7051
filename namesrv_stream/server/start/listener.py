"""Listening sockets, and the addresses at which clients reach them."""

import socket
from collections.abc import Sequence
from typing import Final

from namesrv_stream.ports import listen_fault, reachable_host

#: Source: rocketmq 5.3.3, NettyServerConfig.serverSocketBacklog.
BACKLOG: Final = 1024


def bind(host: str, port: int, section: str) -> socket.socket:
    """Return a listening socket. It is opened first, so that a port in use is reported before anything else happens.

    Raises:
        ConfigError: The address cannot be bound; the error names the key in this section.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(BACKLOG)  # `bind` alone does not fail if another socket is bound but not listening
    except OSError as error:
        bound.close()
        raise listen_fault(error, host, port, section) from error
    return bound


def address(bound: socket.socket) -> str:
    """Return where a socket listens, ``host:port``; 0.0.0.0 or [::] means every address of this machine."""
    return _addr(*bound.getsockname()[:2])


class NameServerAddrs:
    """The list of name servers that clients can request over HTTP."""

    def __init__(self, configured: Sequence[str], listen_host: str, listen_port: int) -> None:
        """Store the configured list, and the address at which this server listens for remoting if the list is empty."""
        self._configured = ";".join(configured)
        self._listen_host = listen_host
        self._listen_port = listen_port

    def reached_by(self, host: str) -> str:
        """Return the list, separated by ``;``, for a client that reached this server at the address ``host``.

        If no list is configured, the list contains only this server. If the server listens on every address, ``host``
        is used, because it is the only address that is known to work for that client.
        """
        if self._configured:
            return self._configured
        own = self._listen_host
        host = host.removeprefix("::ffff:")  # an IPv4 client on an IPv6 socket
        if own == "::" or (own == "0.0.0.0" and ":" not in host):
            own = host
        return _addr(reachable_host(own), self._listen_port)


def _addr(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
