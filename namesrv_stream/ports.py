"""Checks whether a TCP port is free to listen on, chooses a free one, and finds the process that listens on a port."""

import contextlib
import errno
import os
import random
import socket
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from namesrv_stream.addresses import join_addr
from namesrv_stream.errors import ConfigError

_PROC: Final = Path("/proc")
_TABLES: Final = ("net/tcp", "net/tcp6")
_LISTENING: Final = "0A"  # the state in these tables
#: Options of Python and Java with a value as the next argument.
_TAKES_A_VALUE: Final = frozenset({"-cp", "-classpath", "-c"})
_SHOWN_ARGUMENTS: Final = 3
_SHOWN_CHARS: Final = 100
#: Section of the settings → the flag of its port.
PORT_FLAGS: Final = {"remoting": "--remoting-port", "http": "--http-port", "embedded_kafka": "--kafka-port"}
#: The key of the additional listeners; functions of this module take it in place of a section.
VIEW_LISTENERS: Final = "advanced.remoting.view_listeners"
_HOST_KEYS: Final = {
    "embedded_kafka": "advanced.embedded_kafka.listen_host",
    VIEW_LISTENERS: "remoting.listen_host",
}
# Below Linux's range of ports for outgoing connections, so that none of those takes the port first.
_LOWEST_CHOSEN: Final = 20_000
_HIGHEST_CHOSEN: Final = 32_000
_ATTEMPTS: Final = 200
_RANDOM: Final = random.SystemRandom()  # two processes must not choose the same ports, even if a test seeds `random`


def listener_on(port: int) -> str | None:
    """Return the process that listens on ``port``: ``process 4711 (java kafka.Kafka /data/kafka/server.properties)``.

    Returns:
        None if no process listens, or if the process belongs to another user and this process does not run as root.
    """
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return None
    for process in _PROC.glob("[0-9]*"):
        if not sockets.isdisjoint(_open_files(process)):
            return f"process {process.name} ({_command(process)})"
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in _TABLES:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = (_PROC / table).read_text(encoding="ascii").splitlines()[1:]
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _open_files(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(descriptor)


def _command(process: Path) -> str:
    """Return the program and its first arguments that are not options."""
    try:
        arguments = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return "unknown"
    names = [
        argument
        for before, argument in zip(["", *arguments], arguments, strict=False)
        if not argument.startswith("-") and before not in _TAKES_A_VALUE
    ]
    names[:1] = [Path(name).name for name in names[:1]]
    return " ".join(names[:_SHOWN_ARGUMENTS])[:_SHOWN_CHARS] or "unknown"


def require_free(host: str, port: int, section: str) -> None:
    """Check that ``host:port`` can be listened on.

    Raises:
        ConfigError: The port cannot be used; the error names ``section.listen_port``, or ``section.listen_host`` if the
            address is not one of this machine.
    """
    fault = port_fault(host, port, section)
    if fault is not None:
        raise fault


def port_fault(host: str, port: int, section: str) -> ConfigError | None:
    """Return the error if ``host:port`` cannot be listened on; None if it can."""
    error = _bind_error(host, port)
    return None if error is None else listen_fault(error, host, port, section)


def listen_fault(error: OSError, host: str, port: int, section: str) -> ConfigError:
    """Return the error for a refused port, with the process that listens there and the flag that changes the port."""
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    reason = f"cannot listen on {join_addr(host, port)}: {reason}"
    if error.errno not in (errno.EADDRINUSE, errno.EACCES):
        return ConfigError("settings", _HOST_KEYS.get(section, f"{section}.listen_host"), reason)
    listener = listener_on(port) if error.errno == errno.EADDRINUSE else None
    who = f" by {listener}" if listener else ""
    if section == VIEW_LISTENERS:
        return ConfigError("settings", section, f"{reason}{who}")
    flag = f"{PORT_FLAGS[section]} PORT chooses another port, 0 any free one"
    return ConfigError("settings", f"{section}.listen_port", f"{reason}{who}; {flag}")


def choose_port(host: str, preferred: int = 0, taken: Collection[int] = ()) -> int:
    """Return a free port of ``host``.

    Args:
        host: Address to listen on.
        preferred: Returned if it is free, so that peers find the process again; 0 for none.
        taken: Ports to exclude.

    Raises:
        ConfigError: No free port was found, for example because ``host`` is not an address of this machine.
    """
    if preferred and preferred not in taken and _bind_error(host, preferred) is None:
        return preferred
    for _ in range(_ATTEMPTS):
        port = _RANDOM.randrange(_LOWEST_CHOSEN, _HIGHEST_CHOSEN)
        if port not in taken and _bind_error(host, port) is None:
            return port
    raise ConfigError("settings", "listen_host", f"no free port on {host}")


def _bind_error(host: str, port: int) -> OSError | None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As servers do: a port in TIME_WAIT is free, one with a listener is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def reachable_host(listen_host: str) -> str:
    """Return the address by which this machine reaches a listener on ``listen_host``: loopback for a wildcard."""
    return "127.0.0.1" if listen_host in ("0.0.0.0", "::", "") else listen_host
