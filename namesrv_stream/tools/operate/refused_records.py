"""``dead-letters``: records and items that the job refused, from the dead-letter topic."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import orjson
import typer

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.instants import check_past, instant, iso_instant, parse_instant
from namesrv_stream.logs import safe
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import Configuration, configured
from namesrv_stream.text_table import JsonOption, TextColumn, WideOption, counted, plural, print_table
from namesrv_stream.tools.tool_options import emit_json

_COLUMNS: Final = (
    TextColumn("TIME"),
    TextColumn("RECORD"),
    TextColumn("REASON", is_text=True),
    TextColumn("CONTENT", is_text=True),
)


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record of the events topic, or one item of it, that the job could not read or fold.

    Attributes:
        at_ms: When the job refused it, epoch milliseconds.
        partition: Partition in the events topic.
        offset: Offset in that partition.
        item: Number of the refused item in the record; None if the whole record was refused.
        reason: Why it was refused.
        content: ``value`` (JSON), ``value_text`` or ``value_base64``, and ``value_bytes`` if it was cut or left out.
    """

    at_ms: int
    partition: int
    offset: int
    item: int | None
    reason: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RefusedRecords:
    """The newest refused records.

    Attributes:
        records: Oldest first.
        older: Number of older records since the requested time, which ``records`` does not contain.
    """

    records: list[RefusedRecord]
    older: int


def read_dead_letters(settings: Settings, since_ms: int | None, limit: int) -> RefusedRecords:
    """Read the newest dead letters; blocks.

    Args:
        settings: Kafka's address and the name of the topic.
        since_ms: Only records refused since then, in epoch milliseconds; None for all that Kafka keeps.
        limit: Largest number of records; 0 for all.

    Raises:
        KafkaUnreachable: No broker answers.
        NamesrvStreamError: There is no such topic.
    """
    from namesrv_stream.kafka import LogReader, bootstrap_servers  # imports Kafka's client, as only this command needs

    topic = settings.kafka.dead_letter_topic
    found: dict[tuple[int, int, int], RefusedRecord] = {}
    older = 0
    with LogReader(settings, topic) as log:
        partitions = log.partitions()
        if not partitions:
            raise NamesrvStreamError(
                f"Kafka at {bootstrap_servers(settings)} has no topic {topic}: the first part that starts creates it;"
                " or name another installation with --conf or --data-dir"
            )
        for partition in partitions:
            first, end = log.extent(partition)
            if since_ms is not None:
                offset = log.offset_at(partition, since_ms)
                first = end if offset is None else offset
            begin = max(first, end - limit) if limit else first
            older += begin - first
            for batch in log.batches(partition, begin, end):
                for record in batch:
                    fields = orjson.loads(record.value)
                    place = (fields.pop("partition"), fields.pop("offset"), fields.pop("item"))
                    # A restarted job may refuse the records of its last batch a second time.
                    found.setdefault(place, _refused(record.at_ms, place, fields))
    newest = sorted(found.values(), key=lambda record: record.at_ms)
    shown = newest[-limit:] if limit else newest
    return RefusedRecords(shown, older + len(newest) - len(shown))


def _refused(at_ms: int, place: tuple[int, int, int], fields: dict[str, Any]) -> RefusedRecord:
    partition, offset, item = place
    return RefusedRecord(at_ms, partition, offset, item if item >= 0 else None, fields.pop("reason"), fields)


def print_refused(refused: RefusedRecords, *, wide: bool) -> None:
    """Print a table, with long texts cut unless ``wide``; the number of records that are not shown goes to stderr."""
    print_table(_COLUMNS, [_row(record, wide=wide) for record in refused.records], wide=wide)
    if refused.older:
        older = counted(refused.older, "older record")
        print(f"{older} {plural(refused.older, 'is', 'are')} not shown; --limit 0 shows all", file=sys.stderr)


def to_json(records: Sequence[RefusedRecord]) -> list[dict[str, object]]:
    """Return an object for every record, with the keys of the dead-letter topic."""
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


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(configured(dead_letters))


def dead_letters(
    configuration: Configuration,
    since: Annotated[
        str | None, typer.Option("--since", help="Only records refused since then, such as 2h.", metavar="WHEN")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="The newest N; 0 for all.", min=0, metavar="N")] = 20,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the records that the job refused, with the reasons.

    Kafka keeps them for kafka.retention_ms.
    """

    now_ms = SystemClock().now_ms()
    since_ms = None if since is None else check_past("--since", parse_instant("--since", since, now_ms), now_ms)
    refused = read_dead_letters(configuration.load().settings, since_ms, limit)
    if as_json:
        emit_json(to_json(refused.records))
    elif refused.records:
        print_refused(refused, wide=wide)
    else:
        print("no records were refused" + (f" since {instant(since_ms)}" if since_ms is not None else ""))
