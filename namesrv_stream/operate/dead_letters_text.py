"""Refused records as JSON for scripts, and as a table for people."""

import sys
from collections.abc import Sequence
from typing import Final

import orjson

from namesrv_stream.instants import instant, iso_instant
from namesrv_stream.logs import safe
from namesrv_stream.operate.dead_letters import RefusedRecord, RefusedRecords
from namesrv_stream.plurals import counted, plural
from namesrv_stream.text_table import TextColumn, print_table

_COLUMNS: Final = (
    TextColumn("TIME"),
    TextColumn("RECORD"),
    TextColumn("REASON", is_text=True),
    TextColumn("CONTENT", is_text=True),
)


def print_refused(refused: RefusedRecords, *, wide: bool) -> None:
    """A table, in which long texts are cut unless it is ``wide``; stderr says how many records are not shown."""
    print_table(_COLUMNS, [_row(record, wide=wide) for record in refused.records], wide=wide)
    if refused.older:
        older = counted(refused.older, "older record")
        print(f"{older} {plural(refused.older, 'is', 'are')} not shown; --limit 0 shows all", file=sys.stderr)


def as_json(records: Sequence[RefusedRecord]) -> list[dict[str, object]]:
    """An object for every record, with the names of the topic."""
    return [
        {
            "at": iso_instant(record.at_ms),
            "at_ms": record.at_ms,
            "partition": record.partition,
            "offset": record.offset,
            "item": record.item,
            "reason": record.reason,
            **record.content,
        }
        for record in records
    ]


def _row(record: RefusedRecord, *, wide: bool) -> tuple[str, ...]:
    printable = _escaped if wide else safe
    return (
        instant(record.at_ms),
        f"{record.partition}:{record.offset}" + ("" if record.item is None else f" item {record.item}"),
        printable(record.reason),
        printable(_content(record)),
    )


def _content(record: RefusedRecord) -> str:
    content = record.content
    if "value" in content:
        return orjson.dumps(content["value"]).decode()
    if "value_text" in content:
        return str(content["value_text"])
    if "value_base64" in content:
        return f"base64: {content['value_base64']}"
    return f"{content.get('value_bytes', 0):,} bytes, in the events topic only"


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
