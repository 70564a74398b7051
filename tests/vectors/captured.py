"""The content of ``real-frames.jsonl.gz`` as typed values."""

import base64
import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame

_FILE = Path(__file__).with_name("real-frames.jsonl.gz")


@dataclass(frozen=True, slots=True)
class CapturedFrame:
    """One frame as it was on the wire.

    Attributes:
        part: The scenario.
        at_s: Seconds since the part began.
        connection: TCP connection, numbered within the part.
        peer: Who spoke with the server.
        from_peer: True from the peer to the server, False from the server.
        raw: The whole frame, length prefix included.
    """

    part: str
    at_s: float
    connection: int
    peer: str
    from_peer: bool
    raw: bytes

    @property
    def frame(self) -> bytes:
        """The frame without its length prefix."""
        return self.raw[4:]

    @property
    def command(self) -> RemotingCommand:
        """The command in the frame."""
        return decode_frame(self.frame)


@dataclass(frozen=True, slots=True)
class CapturedEnd:
    """A connection that was opened or closed.

    Attributes:
        part: The scenario.
        at_s: Seconds since the part began.
        connection: TCP connection, numbered within the part.
        peer: Who spoke with the server.
        is_close: Whether it was closed; otherwise it was opened.
        from_peer: Whether the peer did this; only peers open connections.
    """

    part: str
    at_s: float
    connection: int
    peer: str
    is_close: bool
    from_peer: bool


@dataclass(frozen=True, slots=True)
class CapturedNote:
    """A note that describes an action of the scenario."""

    part: str
    at_s: float
    text: str


CapturedEvent = CapturedFrame | CapturedEnd | CapturedNote


@cache
def captured_events() -> tuple[CapturedEvent, ...]:
    """Return everything that was captured, in the order of the file."""
    with gzip.open(_FILE) as lines:
        return tuple(_event(json.loads(line)) for line in lines)


def _event(row: dict[str, Any]) -> CapturedEvent:
    if "note" in row:
        return CapturedNote(row["part"], row["t"], row["note"])
    where = (row["part"], row["t"], row["conn"], row["who"])
    from_peer = row["way"] == ">"
    if "event" in row:
        return CapturedEnd(*where, row["event"] == "close", from_peer)
    return CapturedFrame(*where, from_peer, base64.b64decode(row["frame"]))


@cache
def captured_frames() -> tuple[CapturedFrame, ...]:
    """Return all frames in the order of the file."""
    return tuple(event for event in captured_events() if isinstance(event, CapturedFrame))


@cache
def captured_exchanges() -> tuple[tuple[RemotingCommand, RemotingCommand], ...]:
    """Return each answered request with its response, in the order of the responses."""
    waiting: dict[tuple[str, int, int], RemotingCommand] = {}
    exchanges: list[tuple[RemotingCommand, RemotingCommand]] = []
    for captured in captured_frames():
        command = captured.command
        key = (captured.part, captured.connection, command.opaque)
        if captured.from_peer:
            waiting[key] = command
        else:
            exchanges.append((waiting.pop(key), command))
    return tuple(exchanges)
