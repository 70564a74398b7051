"""Computes bodies that take long, in turns, and keeps the newest ones: equal requests share one computation.

Of each body, one computation runs at a time. Requests that arrive after a change of the state wait for the next one.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from namesrv_stream.processor.name_server import LongBody
from namesrv_stream.server.turns import Queue, Turns

logger = logging.getLogger(__name__)

#: Maximum size of all kept bodies: a list of a million topics has 30 MB. A larger one is not kept.
_KEPT_BYTES: Final = 64 << 20
#: Maximum number of kept bodies; a peer chooses some of their keys.
_MOST_KEPT: Final = 64

#: Called with the body; None if its computation failed.
OnBody = Callable[[bytes | None], None]


@dataclass(slots=True)
class _Computation:
    """A computation, its ``body`` once it ``has_ended``, and the next one for requests after a change of the state."""

    long: LongBody
    waiting: list[OnBody] = field(default_factory=list)
    following: "_Computation | None" = None
    has_ended: bool = False
    body: bytes | None = None


class LongAnswers:
    """The bodies that are kept, and those that are being computed. Used by one event loop."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._kept: OrderedDict[object, tuple[object, bytes]] = OrderedDict()
        self.kept_bytes = 0
        self._running: dict[object, _Computation] = {}

    def get(self, long: LongBody, on_body: OnBody) -> bytes | None:
        """Return a body if it is known at once; otherwise None, and call ``on_body`` when it is computed.

        Raises:
            RuntimeError: The computation failed.
        """
        version, body = self._kept.get(long.key, (None, b""))
        if version == long.version:
            self._kept.move_to_end(long.key)
            return body
        running = self._running.get(long.key)
        if running is None:
            running = _Computation(long)
            self._begin(running)
            if running.has_ended and running.body is None:
                raise RuntimeError("the body cannot be computed")
            if running.has_ended:
                return running.body
        elif running.long.version != long.version:
            running.following = running.following or _Computation(long)
            running = running.following
            running.long = long
        running.waiting.append(on_body)
        return None

    def _begin(self, computation: _Computation) -> None:
        self._running[computation.long.key] = computation
        self._turns.run(self._steps(computation), Queue.OTHERS)

    def _steps(self, computation: _Computation) -> Iterator[None]:
        long, pieces = computation.long, list[bytes]()
        try:
            for piece in long.pieces():
                pieces.append(piece)
                yield
            computation.body = b"".join(pieces)
            self._keep(long, computation.body)
        except Exception:
            logger.exception("computing an answer failed code=%s", long.key[0])
        computation.has_ended = True
        del self._running[long.key]
        if computation.following is not None:
            self._begin(computation.following)
        for on_body in computation.waiting:
            on_body(computation.body)
            yield

    def _keep(self, long: LongBody, body: bytes) -> None:
        _, before = self._kept.pop(long.key, (None, b""))
        self.kept_bytes -= len(before)
        if len(body) <= _KEPT_BYTES:
            self._kept[long.key] = long.version, body
            self.kept_bytes += len(body)
        while self.kept_bytes > _KEPT_BYTES or len(self._kept) > _MOST_KEPT:
            _, (_, oldest) = self._kept.popitem(last=False)
            self.kept_bytes -= len(oldest)
