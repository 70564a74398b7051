"""The file operations of a process below one directory, as ``recorder.c`` has recorded them."""

import ctypes
import os
import struct
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.compiler import compile_preload

_SOURCE: Final = Path(__file__).with_name("recorder.c")
_HEADER: Final = struct.Struct("=cQqII")


class Kind(Enum):
    """Kinds of operations."""

    BEGIN = b"B"
    CREATE = b"C"
    MAKE_DIRECTORY = b"D"
    LINK = b"L"
    RENAME = b"R"
    REMOVE = b"U"
    WRITE = b"W"
    TRUNCATE = b"T"
    SYNC = b"S"
    MARK = b"M"
    UNSUPPORTED = b"!"


class Operation(NamedTuple):
    """One operation.

    Attributes:
        kind: What it does.
        inode: Inode of the file or directory that is created, linked, written to, or synced; 0 syncs everything.
        offset: Offset of a write; the new size of a truncation.
        data: The written data.
        path: The name that is renamed or removed, or the new name, relative to the directory; the text of a mark.
        target: The name that a renamed file gets.
    """

    kind: Kind
    inode: int = 0
    offset: int = 0
    data: bytes = b""
    path: str = ""
    target: str = ""


class TraceError(Exception):
    """The trace is incomplete, or the process did something that the recorder cannot follow."""


def recording_environment(root: Path, trace: Path) -> dict[str, str]:
    """Return the environment in which a process records its operations below ``root``, an empty directory.

    Raises:
        NoCompiler: There is no C compiler for the recorder.
    """
    return {
        **os.environ,
        "LD_PRELOAD": str(compile_preload(_SOURCE)),
        "POWER_CUT_ROOT": str(root.resolve()),
        "POWER_CUT_TRACE": str(trace.resolve()),
    }


def mark(text: str) -> None:
    """Write a text into the trace of this process, after all its operations so far."""
    ctypes.CDLL(None).power_cut_mark(text.encode())


def read_trace(path: Path) -> list[Operation]:
    """Read all operations in order.

    Raises:
        TraceError: The trace is truncated, or the process did something that the recorder cannot follow.
    """
    content = memoryview(path.read_bytes())
    operations = []
    position = 0
    while position < len(content):
        if position + _HEADER.size > len(content):
            raise TraceError(f"{path} ends within a header")
        code, inode, offset, first, second = _HEADER.unpack_from(content, position)
        position += _HEADER.size
        head = bytes(content[position : position + first])
        target = bytes(content[position + first : position + first + second]).decode()
        position += first + second
        if position > len(content):
            raise TraceError(f"{path} ends within an operation")
        kind = Kind(code)
        if kind is Kind.UNSUPPORTED:
            raise TraceError(f"{path}: {head.decode()}")
        if kind is Kind.WRITE:
            operations.append(Operation(kind, inode, offset, head))
        else:
            operations.append(Operation(kind, inode, offset, path=head.decode(), target=target))
    return operations
