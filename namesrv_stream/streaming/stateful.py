"""The fold inside Spark: one call folds what a batch holds of one Kafka partition.

State is in two parts. ``hot`` has clocks and leases and is read and written with every call. ``groups`` has one entry
a broker name and is touched by registrations, permissions and topic deletes only. Both are bytes that the pure core
makes, so Spark's encoders have no say in them.
"""

import gc
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle

from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.folded_log import fingerprint
from namesrv_stream.route.fold.state import FoldState, decode_state, encode_state
from namesrv_stream.route.fold.step import FoldOutput, Record
from namesrv_stream.route.group import BrokerGroup, is_nothing
from namesrv_stream.route.group_json import decode_group, encode_group
from namesrv_stream.streaming.dead_letters import encode_dead_letters
from namesrv_stream.tables.schema.change_rows import changes_to_ipc

HOT_STATE: Final = "hot"
GROUPS_STATE: Final = "groups"

#: What a call gives to the sink: rows of changes first, the last row with the offset that all of them reach.
OUTPUT_SCHEMA: Final = (
    "partition INT, next_offset BIGINT, fingerprint BIGINT, at_ms BIGINT, has_direct BOOLEAN, changes BINARY, "
    "dead_letters BINARY, state BINARY"
)
_NOTHING: Final = dict.fromkeys(column.split()[0] for column in OUTPUT_SCHEMA.split(", ")[1:])
#: Initial state: the hot state where broker_name is null, else one group.
INITIAL_STATE_SCHEMA: Final = pa.schema(
    [("partition", pa.int32()), ("broker_name", pa.string()), ("content", pa.binary())]
)

#: What a worker's first folds have loaded is all that it loads.
_LOADING_FOLDS: Final = 3
_CHUNK_ROWS: Final = 20_000  # changes in one output row: some megabytes

_folds = itertools.count()


class StateGroups:
    """A GroupStore over Spark's map state; reads once, writes back what changed when told to."""

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
                # The fold takes any exception for a bad event; this one must fail the batch instead.
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
        """Store the groups that changed, each once.

        Raises:
            Exception: The state store failed, now or at a read before.
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
        partitions: Of the topic.
        state_interval_ms: Log time between two outputs of the hot state.
    """

    def __init__(self, partitions: int, state_interval_ms: int) -> None:
        self._partitions = partitions
        self._state_interval_ms = state_interval_ms

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
        output = FoldOutput()
        for record in records:
            fold(state, groups, record, output)
            if output.dead_letters:
                dead_letters += output.dead_letters
                dead_values[record.offset] = record.value
                output.dead_letters.clear()
            if len(output.changes) >= _CHUNK_ROWS:
                yield _row(partition, changes=changes_to_ipc(output.changes))
                output.changes.clear()
        groups.write_back()
        content = encode_state(state)
        is_due = state.at_ms // self._state_interval_ms > output_at_ms // self._state_interval_ms
        self._hot.update((content, state.at_ms if is_due else output_at_ms))
        yield _row(
            partition,
            next_offset=state.next_offset,
            fingerprint=fingerprint(records[-1].at_ms, records[-1].value),
            at_ms=state.at_ms,
            has_direct=state.has_direct,
            changes=changes_to_ipc(output.changes) if output.changes else None,
            dead_letters=encode_dead_letters(dead_letters, dead_values) if dead_letters else None,
            state=content if is_due else None,
        )
        _spare_the_collector()

    def close(self) -> None:
        """Nothing to close."""


def _spare_the_collector() -> None:
    """Keep Python's cycle collector away from what a Spark worker has loaded, and from the fold.

    Spark's daemon collects behind each task: 30 ms over the modules alone, half of what the worker used at rest. The
    fold makes many objects and no cycles worth looking for in between.
    """
    if TaskContext.get() is not None and next(_folds) < _LOADING_FOLDS:  # in a test of ours it is the test's collector
        gc.freeze()
        gc.disable()


def _row(partition: int, **known: Any) -> Row:
    """A row of ``OUTPUT_SCHEMA``; what is not given is null."""
    return Row(partition=partition, **(_NOTHING | known))
