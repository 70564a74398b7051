"""Stores answers by their requests' bytes without the ``opaque``, in Python. ``native/answers.c`` does it in C."""

from collections import OrderedDict, defaultdict
from collections.abc import Collection
from struct import Struct
from typing import Final, NamedTuple

from namesrv_stream.remoting.command import RequestCode
from namesrv_stream.remoting.frame import ResponseTemplate, cut_opaque, is_canonical
from namesrv_stream.route.events import BrokerHeartbeat

MAX_BYTES: Final = 32 << 20
#: Answers about one topic or broker name: clients differ in language, version and signature. The native lane has the
#: same limit.
ANSWERS_OF_NAME: Final = 128
#: If more names change at once, or more answers depend on them, all answers are dropped, which takes no longer.
_FORGOTTEN_AT_ONCE: Final = 2_000
#: Approximate overhead of an entry in addition to its bytes.
_ENTRY_BYTES: Final = 500
_WORD: Final = Struct(">I")
#: The number of a connection or of an address view, and the request without header word and opaque, in two parts.
_Key = tuple[int, bytes, bytes]


class Effect(NamedTuple):
    """What a request causes besides its answer: ``code`` is counted, and ``heartbeat``, if there is one, is logged."""

    code: int
    heartbeat: BrokerHeartbeat | None


ROUTE_READ: Final = Effect(RequestCode.GET_ROUTEINFO_BY_TOPIC, None)


class _Entry(NamedTuple):
    header_bytes: int  # of the request, without the digits of the opaque
    answer: ResponseTemplate
    name: str
    effect: Effect
    size: int


class KnownAnswers:
    """A least-recently-used cache of answers, each of which depends on the topic or broker with a ``name``.

    ``scope`` limits an answer to clients of one address view, or to one connection.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.known_bytes = 0
        self._max_bytes = max_bytes
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._keys_of: defaultdict[str, dict[_Key, None]] = defaultdict(dict)  # least recently used first

    def find(self, frame: bytes, scope: int) -> bytes | None:
        """Return the stored answer, with length prefix, to a frame without length prefix; None if there is none."""
        found = self.match(frame, scope)
        return None if found is None else found[0]

    def match(self, frame: bytes, scope: int) -> tuple[bytes, Effect] | None:
        """Return the same as ``find``, and the effect of the request."""
        before, opaque, after = cut_opaque(frame)
        key = (scope, before[_WORD.size :], after)
        entry = self._entries.get(key)
        if (
            entry is None
            or not is_canonical(opaque)
            or _WORD.unpack_from(before)[0] != entry.header_bytes + len(opaque)
        ):
            return None
        self._entries.move_to_end(key)
        keys = self._keys_of[entry.name]
        if len(keys) > 1:
            keys[key] = keys.pop(key)
        return entry.answer.frame(opaque), entry.effect

    def know(self, frame: bytes, name: str, parts: ResponseTemplate, scope: int, effect: Effect = ROUTE_READ) -> None:
        """Store an answer, as ``parts`` of its encoding, to a frame for which ``has_template`` is true."""
        before, opaque, after = cut_opaque(frame)
        key = (scope, before[_WORD.size :], after)
        size = _ENTRY_BYTES + len(frame) + len(parts.head) + len(parts.tail)
        self._remove(key)
        keys = self._keys_of[name]
        if len(keys) == ANSWERS_OF_NAME:
            self._remove(next(iter(keys)))
        keys[key] = None
        self._entries[key] = _Entry(_WORD.unpack_from(before)[0] - len(opaque), parts, name, effect, size)
        self.known_bytes += size
        while self.known_bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))

    def forget(self, names: Collection[str] | None) -> None:
        """Drop the answers that depend on these names; None drops all."""
        keys = None
        if names is not None and len(names) <= _FORGOTTEN_AT_ONCE:
            keys = [key for name in names for key in self._keys_of.get(name, ())]
        if keys is None or len(keys) > _FORGOTTEN_AT_ONCE:
            self._entries.clear()
            self._keys_of.clear()
            self.known_bytes = 0
            return
        for key in keys:
            self._remove(key)

    def _remove(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.known_bytes -= entry.size
        keys = self._keys_of[entry.name]
        del keys[key]
        if not keys:
            del self._keys_of[entry.name]
