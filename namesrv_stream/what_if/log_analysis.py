"""Reads the log, and what is known of its brokers from the tables, and analyses all partitions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from namesrv_stream.event_log.log_fold import OnProgress, read_log
from namesrv_stream.event_log.opening import OpenLog, log_opener
from namesrv_stream.event_log.pieces import Piece
from namesrv_stream.event_log.source import LogSource
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.liveness_settings import FoldSettings, values_before
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.settings import Settings
from namesrv_stream.tables.snapshot import load_snapshot, read_rows
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import StoredChanges
from namesrv_stream.what_if.analysis import PartitionAnalysis
from namesrv_stream.what_if.timeout_run import Override


@dataclass(frozen=True, slots=True)
class LogAnalysis:
    """What was read.

    Attributes:
        partitions: One analysis each.
        records: How many were read.
        limits: The settings that hold at the end, in partition 0, but for what was overridden.
        read_from: From which store which records of each partition were read.
        notes: What is to be known of the log: which records are missing and why, which store could not be read.
    """

    partitions: Sequence[PartitionAnalysis]
    records: int
    limits: FoldSettings
    read_from: Sequence[tuple[Piece, ...]] = ()
    notes: Sequence[str] = ()

    @property
    def begin_at_ms(self) -> int | None:
        """LogAppendTime of the first record; None without records."""
        return min((a.at_ms[0] for a in self.partitions if a.at_ms), default=None)

    @property
    def end_at_ms(self) -> int | None:
        return max((a.at_ms[1] for a in self.partitions if a.at_ms), default=None)

    @property
    def observed_ms(self) -> int:
        """Observed time that passed, of the partition that observed most."""
        return max((a.observed_ms for a in self.partitions), default=0)

    @property
    def unregistered(self) -> list[LeaseKey]:
        """Brokers that were heard, and of which no registration is known."""
        return sorted(key for a in self.partitions for key in a.unregistered)


def analyse_log(
    settings: Settings,
    overrides: Sequence[Override],
    since_ms: int,
    on_progress: OnProgress = lambda partition, done, total: None,
    open_log: OpenLog | None = None,
) -> LogAnalysis:
    """Read from an instant on, or from behind the last gap after it, and analyse; blocks, for minutes.

    Args:
        settings: Where Kafka and the tables are.
        overrides: The timeouts to try.
        since_ms: Epoch milliseconds, LogAppendTime.
        on_progress: Told of long reads.
        open_log: Opens the log; by default Kafka's, and the archive for what Kafka has no more.

    Raises:
        KafkaUnreachable: No Kafka, or it went away.
        TableSchemaMismatch: A table is not as this version of the code expects.
    """
    tables, partitions = tables_of(settings), settings.kafka.partitions
    snapshot = load_snapshot(tables)
    elsewhere = {
        LeaseKey(group.broker_name, key): registration.read()
        for group in snapshot.table.groups.values()
        for key, registration in group.registrations.items()
    }
    rows = read_rows(tables, ChangeKind.SETTING) if snapshot.version >= 0 else None
    analyses, read_from, records = [], [], 0
    changes = StoredChanges.open(tables)
    with (open_log or log_opener())(settings) as log:
        log = replace(log, begins=changes.begins if changes else {})
        notes = [*log.notes, *log.gap_texts()]
        for partition in range(partitions):
            begin, end = _range(log, partition, since_ms, notes)
            held = _settings_at(settings, rows, partition, begin)
            analysis = PartitionAnalysis(partition, partitions, overrides, held, elsewhere)
            for batch in read_log(log, partition, begin, end, on_progress):
                records += len(batch)
                for record in batch:
                    analysis.feed(record)
            analyses.append(analysis)
            read_from.append(log.read_from(partition, begin, end))
    return LogAnalysis(analyses, records, analyses[0].runs[0].state.settings, read_from, notes)


def _range(log: LogSource, partition: int, since_ms: int, notes: list[str]) -> tuple[int, int]:
    """Offsets from the instant on, of which none is missing; notes what is left out for that."""
    end = log.end(partition)
    since = log.offset_at(partition, since_ms)
    if since is None:
        return end, end
    begin = max(since, log.starts(partition, end)[-1])
    if begin > since:
        notes.append(f"partition {partition}: what is before those records is left out too: it begins at {begin}")
    return begin, end


def _settings_at(settings: Settings, rows: Sequence[RouteChange] | None, partition: int, offset: int) -> FoldSettings:
    """What held just before a record; without tables, what the configuration says."""
    if rows is None:
        return FoldSettings().with_values(settings.liveness.model_dump())
    return FoldSettings().with_texts(values_before(rows, partition, offset))
