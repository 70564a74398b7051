"""Analyses all partitions of the log, with what the tables say about its brokers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.liveness_settings import FoldSettings, values_before
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.settings import Settings
from namesrv_stream.tables.snapshot import load_snapshot, read_rows
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import StoredChanges
from namesrv_stream.tools.replay.log_archive import OpenLog, log_opener
from namesrv_stream.tools.replay.log_fold import OnProgress, read_log
from namesrv_stream.tools.replay.log_source import LogSource, Piece
from namesrv_stream.tools.what_if.partition_analysis import Override, PartitionAnalysis


@dataclass(frozen=True, slots=True)
class LogAnalysis:
    """The analysis of a part of the log.

    Attributes:
        partitions: The analysis of every partition.
        records: Number of records read.
        limits: The settings in force at the end of partition 0, without overrides.
        read_from: The pieces of the log that were read, by partition.
        notes: Remarks on the log: which records are missing and why, which store could not be read.
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
        """The observed time of the analysed records, of the partition where it is longest."""
        return max((a.observed_ms for a in self.partitions), default=0)

    @property
    def unregistered(self) -> list[LeaseKey]:
        """Brokers with heartbeats but without a known registration."""
        return sorted(key for a in self.partitions for key in a.unregistered)


def analyse_log(
    settings: Settings,
    overrides: Sequence[Override],
    since_ms: int,
    on_progress: OnProgress = lambda partition, done, total: None,
    open_log: OpenLog | None = None,
) -> LogAnalysis:
    """Analyse the log from an instant on, or, if gaps follow, from the end of the last gap; blocks, for minutes.

    Args:
        overrides: The timeouts to try.
        since_ms: LogAppendTime in epoch milliseconds.
        on_progress: Called during long reads.
        open_log: Opens the log; by default from Kafka, and from the archive what Kafka has deleted.

    Raises:
        KafkaUnreachable: Kafka does not answer.
        TableSchemaMismatch: A table has a different schema than this version expects.
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
    """Return first offset and end of the records since ``since_ms``, or, if gaps follow, of those after the last gap.

    In the second case, a note is added.
    """
    end = log.end(partition)
    since = log.offset_at(partition, since_ms)
    if since is None:
        return end, end
    begin = max(since, log.starts(partition, end)[-1])
    if begin > since:
        notes.append(f"partition {partition}: earlier records are not used either: the analysis begins at {begin}")
    return begin, end


def _settings_at(settings: Settings, rows: Sequence[RouteChange] | None, partition: int, offset: int) -> FoldSettings:
    """Return the settings in force just before a record; without tables, the configured settings."""
    if rows is None:
        return FoldSettings().with_values(settings.liveness.model_dump())
    return FoldSettings().with_texts(values_before(rows, partition, offset))
