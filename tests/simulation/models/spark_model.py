"""A model of Spark: a thread that folds what is in Kafka in micro-batches and calls the product's sink.

The fold, the state's encoding, the sink and the commits are the product's. The model keeps the fold's state between two
batches instead of encoding and decoding it for each one; it does so only when it outputs a state, once a minute.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

from namesrv_stream.route.digest import decode_group, encode_group
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.folded_log import fingerprint
from namesrv_stream.route.fold.state import FoldState, decode_state, encode_state
from namesrv_stream.route.fold.step import FoldOutput, GroupDict, Record
from namesrv_stream.settings import Settings
from namesrv_stream.streaming.route_table.stateful import encode_dead_letters
from namesrv_stream.tables.change_rows import changes_to_ipc
from tests.simulation.models.kafka_model import EVENTS, SimKafka
from tests.simulation.runtime.process import MS, SECOND
from tests.simulation.runtime.scheduler import Scheduler, Waiters

_START: Final = 4 * SECOND
_KAFKA_PATIENCE: Final = 20 * SECOND
_ASK_AGAIN: Final = 200 * MS


class _Partition:
    """The state of one partition's fold."""

    def __init__(self, state: FoldState) -> None:
        self.state = state
        self.groups = GroupDict()
        self.output_at_ms = 0


class SparkModel:
    """The session and its only query."""

    def __init__(self, scheduler: Scheduler, kafka: SimKafka) -> None:
        self._scheduler, self._kafka = scheduler, kafka
        self.batch_delay = (15 * MS, 60 * MS)
        self.longest_wait = 5 * SECOND
        self.waiters = Waiters(scheduler)

    def build_session(self, settings: Settings) -> object:
        self._scheduler.sleep(_START)
        return self

    def start_query(
        self, spark: object, settings: Settings, start: Any, sink: Callable[[Any, int], None], _: int | None
    ) -> "Query":
        return Query(self._scheduler, self._kafka, self, settings, start, sink)

    def wake(self) -> None:
        self.waiters.wake()


class Query:
    def __init__(
        self,
        scheduler: Scheduler,
        kafka: SimKafka,
        spark: SparkModel,
        settings: Settings,
        start: Any,
        sink: Callable[[Any, int], None],
    ) -> None:
        self._scheduler, self._kafka, self._spark, self._sink = scheduler, kafka, spark, sink
        self._max_records = settings.streaming.max_offsets_per_trigger
        self._state_interval_ms = settings.streaming.compaction_interval_ms
        self._offsets: dict[int, int] = dict(start.offsets)
        count = settings.kafka.partitions
        self._partitions = {p: _Partition(FoldState(p, count)) for p in range(count)}
        for partition, name, content in start.initial_state:
            found = self._partitions[partition]
            if name is None:
                found.state = decode_state(content)
            else:
                found.groups.put(decode_group(content))

    def awaitTermination(self) -> None:
        batch_id, away_since = 0, None
        while True:
            extent = self._read_extent()
            if extent is None:
                away_since = self._scheduler.now if away_since is None else away_since
                if self._scheduler.now - away_since > _KAFKA_PATIENCE:
                    raise RuntimeError("Spark: Kafka does not answer")
                self._scheduler.sleep(_ASK_AGAIN)
                continue
            away_since = None
            ranges = self._ranges(extent)
            if not ranges:
                self._spark.waiters.wait(self._spark.longest_wait)
                self._scheduler.sleep(10 * MS)  # so that the ticks of all servers are in one batch
                continue
            low, high = self._spark.batch_delay
            outputs = [self._fold(partition, begin, end) for partition, (begin, end) in ranges.items()]
            self._scheduler.sleep(self._scheduler.random.randrange(low, high))
            batch = SimpleNamespace(toArrow=lambda found=outputs: SimpleNamespace(to_pylist=lambda: found))
            self._sink(batch, batch_id)
            batch_id += 1

    def _read_extent(self) -> Mapping[int, tuple[int, int]] | None:
        if not all(self._kafka.is_available(EVENTS, p) for p in self._partitions):
            return None
        logs = {p: self._kafka.log(p) for p in self._partitions}
        return {p: (log.first, log.end) for p, log in logs.items()}

    def _ranges(self, extent: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        found = {}
        for partition, (first, end) in extent.items():
            begin = self._offsets[partition]
            if not first <= begin <= end:
                raise RuntimeError(f"Spark: failOnDataLoss, partition {partition} has no offset {begin}")
            if begin < end:
                found[partition] = (begin, min(end, begin + self._max_records))
        return found

    def _fold(self, partition: int, begin: int, end: int) -> dict[str, Any]:
        """Fold some records, as ``RouteStatefulProcessor`` does, and return the last row of its output."""
        found, log = self._partitions[partition], self._kafka.log(partition)
        state, output, dead = found.state, FoldOutput(), dict[int, bytes]()
        record = Record(partition, begin, 0, b"")
        for offset in range(begin, end):
            stored = log.at(offset)
            record = Record(partition, offset, stored.at_ms, stored.value)
            letters = len(output.dead_letters)
            fold(state, found.groups, record, output)
            if len(output.dead_letters) > letters:
                dead[offset] = stored.value
        self._offsets[partition] = end
        is_due = state.at_ms // self._state_interval_ms > found.output_at_ms // self._state_interval_ms
        content = encode_state(state) if is_due else None
        if content is not None:
            found.output_at_ms = state.at_ms
            found.state = decode_state(content)
            groups = GroupDict()
            for group in found.groups.groups.values():
                groups.put(decode_group(encode_group(group)))
            found.groups = groups
        return {
            "partition": partition,
            "next_offset": end,
            "fingerprint": fingerprint(record.at_ms, record.value),
            "first_ms": log.at(begin).at_ms,
            "last_ms": record.at_ms,
            "at_ms": found.state.at_ms,
            "has_direct": found.state.has_direct,
            "changes": changes_to_ipc(output.changes) if output.changes else None,
            "dead_letters": encode_dead_letters(output.dead_letters, dead) if output.dead_letters else None,
            "state": content,
        }
