"""Records of heartbeats: one server's, of many brokers of one partition. They are nearly all of a log."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route.event_fields import broker_fields, connection_id, head_fields, live_key_from
from namesrv_stream.route.events import BrokerHeartbeat, Origin, Proof
from namesrv_stream.route.registration_json import require

HEARTBEATS_KIND = "broker_heartbeats"
#: What a server puts into one record.
MAX_ITEMS: Final = 2_000

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
