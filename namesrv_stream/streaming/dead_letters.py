"""What goes to the dead-letter topic: the reason, where the record was, and as much of it as helps."""

import base64
from dataclasses import dataclass
from typing import Any, Final

import orjson

from namesrv_stream.route.fold.step import DeadLetter

_MAX_VALUE_BYTES: Final = 1 << 20  # a record may be 20 MiB; the log has it whole, at (partition, offset)
_MAX_LIST_BYTES: Final = 32 << 20  # of values in one list; later letters have theirs in the log only
_MAX_REASON_CHARS: Final = 1_000  # a reason quotes what it refuses, which may be as long as the record


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """One record of the dead-letter topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def encode_dead_letters(letters: list[DeadLetter], values: dict[int, bytes]) -> bytes:
    """Dead letters of one partition as a JSON list; costs no more than their records, whatever these hold.

    Args:
        letters: In the order of the log.
        values: offset → the record's value, for each letter's offset.
    """
    offset, record, room, fields = -1, None, _MAX_LIST_BYTES, []
    for letter in letters:
        value = values[letter.offset]
        if letter.offset != offset:  # once, however many of its items failed
            offset, record = letter.offset, _parsed(value)
        content = _content(letter.item, record, value) if room > 0 else {"value_bytes": len(value)}
        room -= len(orjson.dumps(content))
        fields.append(letter._asdict() | {"reason": letter.reason[:_MAX_REASON_CHARS]} | content)
    return orjson.dumps(fields)


def decode_dead_letters(data: bytes) -> list[DeadLetterRecord]:
    """Inverse of ``encode_dead_letters``: key ``partition-offset-item`` and JSON value of each."""
    return [
        DeadLetterRecord(
            partition=fields["partition"],
            offset=fields["offset"],
            key=f"{fields['partition']}-{fields['offset']}-{fields['item']}".encode(),
            value=orjson.dumps(fields),
        )
        for fields in orjson.loads(data)
    ]


def _parsed(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def _content(item: int, record: Any, value: bytes) -> dict[str, Any]:
    """The failed item, else the record as text, else as base64; cut where it is long."""
    if item >= 0:
        try:
            failed = record["items"][item] if isinstance(record, dict) and "items" in record else record
            # Nested as it will be: orjson reads deeper than it writes.
            if len(orjson.dumps([{"value": failed}])) <= _MAX_VALUE_BYTES:
                return {"value": failed}
        except (LookupError, TypeError):
            pass
    head = value[:_MAX_VALUE_BYTES]
    cut = {"value_bytes": len(value)} if len(value) > len(head) else {}
    try:
        return {"value_text": head.decode(), **cut}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(head).decode(), **cut}
