"""Records of heartbeats: one server's, of many brokers of one partition.

They are nearly all of a log. Nearly every item of one is, to the byte, an item of an earlier record, so what was read
once is known by its bytes (``KnownHeartbeats``) and read again without JSON.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.event_fields import broker_fields, connection_id, head_fields, live_key_from, read_head
from namesrv_stream.route.events import BrokerHeartbeat, Event, Origin, Proof
from namesrv_stream.route.registration_json import require

HEARTBEATS_KIND = "broker_heartbeats"
#: What a server puts into one record.
MAX_ITEMS: Final = 2_000

_BEFORE_ITEMS: Final = b'"items":[{'
_BETWEEN_ITEMS: Final = b"},{"
_BEHIND_ITEMS: Final = b"}]}"
#: Bytes of a head or an item that may be known; ours have some two hundred.
_LONGEST: Final = 400
_PROOFS: Final[Mapping[str, Proof]] = {str(p): p for p in Proof}


def encode_heartbeats(events: Iterable[BrokerHeartbeat]) -> bytes:
    """One record of many heartbeats, all of one server and one partition."""
    items = list(events)
    head = head_fields(HEARTBEATS_KIND, items[0].origin._replace(connection_id=0))
    return orjson.dumps(head | {"items": [_fields(e) for e in items]})


def _fields(event: BrokerHeartbeat) -> dict[str, Any]:
    item = broker_fields(event.broker_name, event.live_key) | {"proof": event.proof}
    if event.registration_hash:
        item["registration_hash"] = event.registration_hash
    if event.origin.connection_id:
        item["connection_id"] = event.origin.connection_id
    return item


def heartbeat_from(item: Any, origin: Origin) -> BrokerHeartbeat | EventDecodeError:
    """One item of a record, or what is wrong with it.

    Args:
        item: What its JSON holds.
        origin: Of the record.
    """
    if not isinstance(item, dict):
        return EventDecodeError("items: expected objects")
    try:
        proof = require(item, "proof", str)
        if proof not in _PROOFS:
            raise EventDecodeError(f"proof: {proof} is unknown")
        registration_hash = require(item, "registration_hash", str) if "registration_hash" in item else ""
        if not registration_hash and proof == Proof.REGISTRATION:
            raise EventDecodeError("registration_hash: expected with this proof")
        return BrokerHeartbeat(
            origin=Origin(origin.server_id, origin.server_epoch, connection_id(item)),
            broker_name=require(item, "broker_name", str),
            live_key=live_key_from(item),
            proof=_PROOFS[proof],
            registration_hash=registration_hash,
        )
    except EventDecodeError as error:
        return error


class KnownHeartbeats:
    """Items of records that were read before, by their bytes.

    A record is cut where one item seems to end and the next to begin. Where each part is an object of JSON by itself,
    the whole is the array of just these objects. Where a part is none (a text in it holds what separates items), the
    record is for the decoder of all records; and where one is long, which also bounds how deep it nests. What is made
    of a record does not depend on those that were read before.

    Args:
        capacity: How many heads and items are known, but for one record; all are forgotten when there are more.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._count = 0
        self._of_head: dict[bytes, tuple[Origin, dict[bytes, BrokerHeartbeat]]] = {}

    def __len__(self) -> int:
        return len(self._of_head) + sum(len(known) for _, known in self._of_head.values())

    def read(self, value: bytes) -> list[Event | EventDecodeError] | None:
        """The items of a record, in order; None for one that is broken, or of another kind or form."""
        head, found, rest = value.partition(_BEFORE_ITEMS)
        if not found or not rest.endswith(_BEHIND_ITEMS):
            return None
        if self._count > self._capacity:
            self._of_head.clear()
            self._count = 0
        read = self._of_head.get(head) or self._learn_head(head)
        if read is None:
            return None
        origin, known = read
        parts = rest[: -len(_BEHIND_ITEMS)].split(_BETWEEN_ITEMS)
        try:
            return [known[part] for part in parts]
        except KeyError:
            return self._learn_items(parts, origin, known) if len(parts) <= MAX_ITEMS else None

    def _learn_head(self, head: bytes) -> tuple[Origin, dict[bytes, BrokerHeartbeat]] | None:
        if len(head) > _LONGEST or b"\\" in head:  # An escape may make the last key another than it seems.
            return None
        try:
            kind, origin = read_head(orjson.loads(head + b'"items":[]}'))
        except (orjson.JSONDecodeError, EventDecodeError):
            return None
        if kind != HEARTBEATS_KIND:
            return None
        self._count += 1
        return self._of_head.setdefault(head, (origin, {}))

    def _learn_items(
        self, parts: list[bytes], origin: Origin, known: dict[bytes, BrokerHeartbeat]
    ) -> list[Event | EventDecodeError] | None:
        items: list[Event | EventDecodeError] = []
        for part in parts:
            item: Event | EventDecodeError | None = known.get(part)
            if item is None:
                if len(part) > _LONGEST:
                    return None
                try:
                    item = heartbeat_from(orjson.loads(b"{" + part + b"}"), origin)
                except orjson.JSONDecodeError:
                    return None
                if isinstance(item, BrokerHeartbeat):
                    known[part] = item
                    self._count += 1
            items.append(item)
        return items
