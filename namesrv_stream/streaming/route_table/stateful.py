"""The fold inside Spark. One call folds the records of one Kafka partition in a batch.

The state has two parts. ``hot`` contains clocks and leases, and every call reads and writes it. ``groups`` has one
entry per broker name, which only registrations, permission changes and topic deletions read and write. Both are encoded
by ``route``, independent of Spark's encoders.

Records that cannot be folded become dead letters. These contain the reason, partition and offset of the record, and
the failed item of the record or the whole record, truncated if it is long.
"""

import base64
import gc
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from namesrv_stream.route.digest import decode_group, encode_group
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.folded_log import fingerprint
from namesrv_stream.route.fold.state import FoldState, decode_state, encode_state
from namesrv_stream.route.fold.step import DeadLetter, FoldOutput, Record
from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.tables.change_rows import changes_to_ipc

HOT_STATE: Final = "hot"
GROUPS_STATE: Final = "groups"

#: The output of a call for the sink: rows with changes and the offset that these reach. Only the last row, which may be
#: without changes, has the other columns: ``first_ms`` and ``last_ms`` are the LogAppendTimes of the first and last
#: record of the batch. ``at_ms`` is the highest so far.
OUTPUT_SCHEMA: Final = (
    "partition INT, next_offset BIGINT, fingerprint BIGINT, first_ms BIGINT, last_ms BIGINT, at_ms BIGINT, "
    "has_direct BOOLEAN, changes BINARY, dead_letters BINARY, state BINARY"
)
_NOTHING: Final = dict.fromkeys(column.split()[0] for column in OUTPUT_SCHEMA.split(", ")[1:])
#: Initial state: the hot state if broker_name is null, otherwise one group.
INITIAL_STATE_SCHEMA: Final = pa.schema(
    [("partition", pa.int32()), ("broker_name", pa.string()), ("content", pa.binary())]
)

#: After this many folds, a worker has loaded all modules.
_LOADING_FOLDS: Final = 3
_CHUNK_ROWS: Final = 20_000  # changes in one output row: some megabytes
#: The most rows of a batch in each partition: 12 MB in the driver's JVM. A single record may have more.
_MOST_ROWS: Final = 500_000

_folds = itertools.count()


class BatchTooLarge(Exception):
    """The records of a batch cause too many rows.

    Args:
        fit: The number of records of a partition, from the first one, that do not.
    """

    def __init__(self, fit: int) -> None:
        super().__init__(f"only {fit} records fit")


_FIT: Final = re.compile(rf"{BatchTooLarge.__name__}: only (\d+) records fit")


def records_that_fit(failure: Exception | None) -> int | None:
    """Return ``fit`` if a query failed with ``BatchTooLarge``. Spark keeps only the text of an exception."""
    found = _FIT.search(str(failure))
    return int(found[1]) if found else None


class StateGroups:
    """A GroupStore over Spark's map state. It reads each group once, and writes changed groups on request."""

    def __init__(self, entries: MapState) -> None:
        self._entries = entries
        self._known: dict[str, BrokerGroup | None] = {}
        self._changed: set[str] = set()
        self._failure: Exception | None = None

    def get(self, broker_name: str) -> BrokerGroup | None:
        if broker_name not in self._known:
            try:
                entry = self._entries.getValue((broker_name,))
                self._known[broker_name] = None if entry is None else decode_group(bytes(entry[0]))
            except Exception as error:
                # A failed read must fail the batch, even if the caller handles the exception.
                self._failure = error
                raise
        return self._known[broker_name]

    def put(self, group: BrokerGroup) -> None:
        self._known[group.broker_name] = None if is_nothing(group) else group
        self._changed.add(group.broker_name)

    def names(self) -> Iterable[str]:
        stored = {str(key[0]) for key in self._entries.keys()}  # noqa: SIM118 (no mapping: keys() asks the JVM)
        return sorted((stored - self._changed) | {n for n in self._changed if self._known[n] is not None})

    def write_back(self) -> None:
        """Store each changed group once.

        Raises:
            Exception: The state store failed, now or at an earlier read.
        """
        if self._failure is not None:
            raise self._failure
        for name in sorted(self._changed):
            group = self._known[name]
            if group is not None:
                self._entries.updateValue((name,), (encode_group(group),))
            elif self._entries.containsKey((name,)):
                self._entries.removeKey((name,))


class RouteStatefulProcessor(StatefulProcessor):
    """Folds records of one partition, in the order of their offsets.

    Args:
        state_interval_ms: Log time between two outputs of the hot state, milliseconds.
        most_rows: The most rows of a batch, unless a single record has more; then ``BatchTooLarge`` is raised.
    """

    def __init__(self, partitions: int, state_interval_ms: int, most_rows: int = _MOST_ROWS) -> None:
        self._partitions = partitions
        self._state_interval_ms = state_interval_ms
        self._most_rows = most_rows

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._hot = handle.getValueState(HOT_STATE, "content BINARY, output_at_ms BIGINT")
        self._groups = handle.getMapState(GROUPS_STATE, "broker_name STRING", "content BINARY")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        content = bytes(initialState["content"])
        if initialState["broker_name"] is None:
            self._hot.update((content, 0))
        else:
            self._groups.updateValue((initialState["broker_name"],), (content,))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        partition = int(key[0])
        hot = self._hot.get()
        state = FoldState(partition, self._partitions) if hot is None else decode_state(bytes(hot[0]))
        output_at_ms = 0 if hot is None else int(hot[1])
        groups = StateGroups(self._groups)
        records = sorted(Record(int(r[0]), int(r[1]), int(r[2]), bytes(r[3] or b"")) for r in rows)
        dead_letters: list[Any] = []
        dead_values: dict[int, bytes] = {}
        output, rows_before = FoldOutput(), 0
        for number, record in enumerate(records):
            fold(state, groups, record, output)
            if number and rows_before + len(output.changes) > self._most_rows:
                raise BatchTooLarge(number)
            if output.dead_letters:
                dead_letters += output.dead_letters
                dead_values[record.offset] = record.value
                output.dead_letters.clear()
            if len(output.changes) >= _CHUNK_ROWS:
                yield _row(partition, changes=changes_to_ipc(output.changes), **_reached(state, record))
                rows_before += len(output.changes)
                output.changes.clear()
        groups.write_back()
        content = encode_state(state)
        is_due = state.at_ms // self._state_interval_ms > output_at_ms // self._state_interval_ms
        self._hot.update((content, state.at_ms if is_due else output_at_ms))
        yield _row(
            partition,
            **_reached(state, records[-1]),
            first_ms=records[0].at_ms,
            last_ms=records[-1].at_ms,
            has_direct=state.has_direct,
            changes=changes_to_ipc(output.changes) if output.changes else None,
            dead_letters=encode_dead_letters(dead_letters, dead_values) if dead_letters else None,
            state=content if is_due else None,
        )
        _disable_collector()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _disable_collector() -> None:
    """Disable the cyclic garbage collector in a Spark worker, and exclude loaded modules from later collections.

    Spark's daemon runs a collection after each task. This takes 30 ms for the modules alone, half of an idle worker's
    time. The fold creates many objects, but no cycles of relevant size.
    """
    if TaskContext.get() is not None and next(_folds) < _LOADING_FOLDS:  # not in a unit test, which shares the process
        gc.freeze()
        gc.disable()


def _reached(state: FoldState, record: Record) -> dict[str, int]:
    """Return the columns that say how far the log is folded."""
    place = fingerprint(record.at_ms, record.value)
    return {"next_offset": state.next_offset, "fingerprint": place, "at_ms": state.at_ms}


def _row(partition: int, **known: Any) -> Row:
    """Return a row of ``OUTPUT_SCHEMA``. Columns that are not given are null."""
    return Row(partition=partition, **(_NOTHING | known))


_MAX_VALUE_BYTES: Final = 1 << 20  # a record may have up to 20 MiB; the log has it complete, at (partition, offset)
_MAX_LIST_BYTES: Final = 32 << 20  # total size of values in one list; later dead letters have no values
_MAX_REASON_CHARS: Final = 1_000  # a reason may quote a part of the record, which may be long


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """One record of the dead-letter topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes


def encode_dead_letters(letters: list[DeadLetter], values: dict[int, bytes]) -> bytes:
    """Return dead letters of one partition as a JSON list, whose size is limited.

    Args:
        letters: Dead letters in the order of the log.
        values: Offset → the record's value, for each dead letter's offset.
    """
    offset, record, room, fields = -1, None, _MAX_LIST_BYTES, []
    for letter in letters:
        value = values[letter.offset]
        if letter.offset != offset:  # parsed once for all failed items of a record
            offset, record = letter.offset, _parsed(value)
        content = _content(letter.item, record, value) if room > 0 else {"value_bytes": len(value)}
        room -= len(orjson.dumps(content))
        fields.append(letter._asdict() | {"reason": letter.reason[:_MAX_REASON_CHARS]} | content)
    return orjson.dumps(fields)


def decode_dead_letters(data: bytes) -> list[DeadLetterRecord]:
    """Return the Kafka records for the bytes of ``encode_dead_letters``.

    The key of a record is ``partition-offset-item``; its value is JSON.
    """
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
    """Return the failed item, otherwise the record as text, otherwise as base64; long values are truncated."""
    if item >= 0:
        try:
            failed = record["items"][item] if isinstance(record, dict) and "items" in record else record
            # Nested as in the output, because orjson reads deeper nesting than it writes.
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
