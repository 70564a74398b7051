"""A server's process: settings of the system and the interpreter, with their measured effects, and listening sockets.

The measurements used Python 3.11 on two cores: a server's modules, then 300 registrations with 2,000 topics each.
Turning the garbage collector off during imports had no effect, so it stays on then.
"""

import asyncio
import contextlib
import ctypes
import gc
import ipaddress
import logging
import os
import resource
import socket
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Final, NamedTuple

from namesrv_stream.addresses import join_addr, plain_host
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.ports import listen_fault, reachable_host
from namesrv_stream.server.tls import calls_context, read_certificate
from namesrv_stream.settings import RemotingSettings, Settings, read_accounts
from namesrv_stream.settings.checks import read_view_file

logger = logging.getLogger(__name__)

#: Parameters of glibc's mallopt. Source: glibc, malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Blocks up to ``_REUSED_BYTES`` reuse memory that the process already has; it keeps up to ``_KEPT_BYTES`` for them.
_REUSED_BYTES: Final = 32 << 20
_KEPT_BYTES: Final = 128 << 20
#: For so long the process keeps memory that nothing uses.
_RETURN_EVERY_S: Final = 10.0
#: Open files other than connections: listeners, Kafka, tables, logs, libraries.
_OTHER_FILES: Final = 512


def prepare_imports() -> None:
    """Block imports that only cost time and memory. Call it before anything large is imported."""
    sys.meta_path.insert(0, _WithoutNumpy())
    # pyarrow's own allocator does not return memory: after reading 300,000 rows, 145 to 156 MB, not 115 to 125.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def keep_all() -> None:
    """Exclude all current objects from garbage collection, because they live as long as the process.

    A full collection, which delays every answer, then takes 23 to 126 ms instead of 270 to 820 ms.
    """
    gc.freeze()


def prepare_process(max_connections: int) -> None:
    """Tune the collector and the allocator, and allow enough open files for ``max_connections``."""
    # Python's default thresholds collect all generations 14 times during the registrations, these never; they use 8 %
    # less processor time. A larger first one would stop the loop for longer: 50,000 young objects take some 10 ms.
    gc.set_threshold(10_000, 5, 200)
    # The frame of a large registration reuses the memory of the previous one. Otherwise the kernel clears new pages for
    # every copy: 1.6 ms and 139 page faults for three copies of 350 kB, not 0.1 ms. Other allocators have no mallopt.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _REUSED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    _allow_open_files(max_connections)


async def return_free_memory() -> None:
    """Return memory that nothing uses to the system, again and again: much of it lies between blocks in use.

    After two floods of 100 peers that read no answers, a server has 206 MB, not 370. Each return takes 1 to 8 ms of a
    thread that does not hold the interpreter's lock. Other allocators have no malloc_trim.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while malloc_trim is not None:
        await asyncio.sleep(_RETURN_EVERY_S)
        await asyncio.to_thread(malloc_trim, 0)


def _allow_open_files(connections: int) -> None:
    """Raise the soft limit of open files, often 1,024, as far as the connections need and the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        logger.warning("open files are limited to %d, too few for the allowed connections=%d", hard, connections)
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def require_files(settings: Settings) -> None:
    """Check those files named in the settings that the server reads, so that a mistake is reported at once; blocks.

    Raises:
        ConfigError: A file cannot be used.
    """
    read_accounts(settings.admin)
    if settings.tls.cert_file:
        read_certificate(settings.tls)
    if settings.tls.is_for_calls:
        calls_context(settings.tls)
    read_views(settings)


def read_views(settings: Settings) -> dict[str, str]:
    """Return the documents of the configured address views, by the names of their files; blocks.

    Raises:
        ConfigError: A file cannot be read, or contains no valid view.
    """
    files = map(Path, settings.remoting.view_files)
    return {file.stem: read_view_file(file, file.stem, "advanced.remoting.view_files") for file in files}


class _WithoutNumpy(MetaPathFinder):
    """Hides numpy and pandas from pyarrow and polars, which would import them if possible; numpy alone takes 11 MB."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname in ("numpy", "pandas"):
            raise ModuleNotFoundError(f"the server runs without {fullname}", name=fullname)


_EXIT_FAILED: Final = 1


def exit_code_of(failures: BaseExceptionGroup[BaseException]) -> int:
    """Log failures of the server's tasks with tracebacks, because they are bugs, and return the exit code.

    Raises:
        NamesrvStreamError: A failure is of this class, and so is expected and not a bug; its text says what to do.
    """
    expected: BaseException | None = failures.subgroup(NamesrvStreamError)
    while isinstance(expected, BaseExceptionGroup):
        expected = expected.exceptions[0]
    if expected is not None:
        raise expected from None
    logger.critical("the server stops, because a part of it failed", exc_info=failures)
    return _EXIT_FAILED


#: Source: rocketmq 5.3.3, NettyServerConfig.serverSocketBacklog.
BACKLOG: Final = 1024


def bind(host: str, port: int, section: str) -> socket.socket:
    """Return a listening socket. It is opened before any part runs, so that a port in use is reported at the start.

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
    return join_addr(*bound.getsockname()[:2])


def advertised_address(remoting: RemotingSettings, listen_port: int) -> str:
    """Return the remoting address that this server advertises to the others; "" for none.

    If none is configured, it is the address on which the server listens, unless that address is only valid on this
    machine: a wildcard, loopback or link-local address.
    """
    host = remoting.listen_host
    if remoting.advertised_address:
        return remoting.advertised_address
    with contextlib.suppress(ValueError):
        ip = ipaddress.ip_address(host)
        if ip.is_unspecified or ip.is_loopback or ip.is_link_local:
            return ""
    return "" if host == "localhost" else join_addr(host, listen_port)


class NameServerAddrs(NamedTuple):
    """The configured list, served over HTTP, of name servers for clients; and this server's remoting address."""

    configured: Sequence[str]
    listen_host: str
    listen_port: int

    def reached_by(self, host: str, listed: Sequence[str] = ()) -> list[str]:
        """Return the name servers for a client that reached this one at the address ``host``.

        These are the configured ones, or else those that are ``listed`` in the log, or else only this server. If this
        server listens on every address, ``host`` is used, because no other address is known to work for that client.
        """
        if known := self.configured or listed:
            return list(known)
        own = self.listen_host
        host = plain_host(host)
        if own == "::" or (own == "0.0.0.0" and ":" not in host):
            own = host
        return [join_addr(reachable_host(own), self.listen_port)]
