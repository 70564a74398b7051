"""Which process of this machine listens on a TCP port, as far as Linux tells it to this user."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TABLES: Final = ("net/tcp", "net/tcp6")
_LISTENING: Final = "0A"  # the state in these tables
#: Options of Python and Java whose next argument is no name.
_TAKES_A_VALUE: Final = frozenset({"-cp", "-classpath", "-c"})
_SHOWN_WORDS: Final = 3
_SHOWN_CHARS: Final = 100


def listener_on(port: int) -> str | None:
    """The process that listens on ``port``: ``process 4711 (java kafka.Kafka /data/kafka/server.properties)``.

    Returns:
        None where nobody listens, or where another user's process does, which only root may look into.
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
    """The program and its first arguments that are no options."""
    try:
        words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return "unknown"
    names = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not word.startswith("-") and before not in _TAKES_A_VALUE
    ]
    names[:1] = [Path(name).name for name in names[:1]]
    return " ".join(names[:_SHOWN_WORDS])[:_SHOWN_CHARS] or "unknown"
