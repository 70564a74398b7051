"""What goes to the dead-letter topic: the reason, where the record was, and as much of it as helps."""

import base64
from dataclasses import dataclass
from typing import Any, Final

import orjson

from namesrv_stream.route.fold import DeadLetter

_MAX_VALUE_BYTES: Final = 1 << 20  # a record may be 20 MiB; the log has it whole, at (partition, offset)


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """One record of the dead-letter topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def encode_dead_letters(letters: list[DeadLetter], values: dict[int, bytes]) -> bytes:
    """Dead letters of one partition as a JSON list.

    Args:
        letters: In the order of the log.
        values: offset → the record's value, for each letter's offset.
    """
    return orjson.dumps([_fields(letter, values[letter.offset]) for letter in letters])


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


def _fields(letter: DeadLetter, value: bytes) -> dict[str, Any]:
    return letter._asdict() | _content(letter.item, value)


def _content(item: int, value: bytes) -> dict[str, Any]:
    """The failed item, else the record as text, else as base64; cut where it is long."""
    if item >= 0:
        try:
            record = orjson.loads(value)
            failed = record["items"][item] if isinstance(record, dict) and "items" in record else record
        except (orjson.JSONDecodeError, LookupError, TypeError):
            pass
        else:
            if len(orjson.dumps(failed)) <= _MAX_VALUE_BYTES:
                return {"value": failed}
    head = value[:_MAX_VALUE_BYTES]
    cut = {"value_bytes": len(value)} if len(value) > len(head) else {}
    try:
        return {"value_text": head.decode(), **cut}
    except UnicodeDecodeError:
        return {"value_base64": base64.b64encode(head).decode(), **cut}
