"""Reads the log from Kafka, and what is known of its brokers from the tables, and analyses all partitions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from namesrv_stream.kafka import LogReader
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.setting_history import values_before
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.settings import Settings
from namesrv_stream.snapshot import load_snapshot, read_rows
from namesrv_stream.what_if.analysis import PartitionAnalysis
from namesrv_stream.what_if.timeout_run import Override


@dataclass(frozen=True, slots=True)
class LogAnalysis:
    """What was read.

    Attributes:
        partitions: One analysis each.
        records: How many were read.
        limits: The settings that hold at the end, in partition 0, but for what was overridden.
    """

    partitions: Sequence[PartitionAnalysis]
    records: int
    limits: FoldSettings

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
    on_progress: Callable[[int], None] = lambda records: None,
) -> LogAnalysis:
    """Read from an instant on and analyse; blocks, some ten thousand records a second and timeout.

    Args:
        settings: Where Kafka and the tables are.
        overrides: The timeouts to try.
        since_ms: Epoch milliseconds, LogAppendTime.
        on_progress: Told now and then how many records were read.

    Raises:
        KafkaUnreachable: No Kafka, or it went away.
        TableSchemaMismatch: A table is not as this version of the code expects.
    """
    snapshot = load_snapshot(settings.data.tables_dir)
    elsewhere = {
        LeaseKey(group.broker_name, key): registration
        for group in snapshot.table.groups.values()
        for key, registration in group.registrations.items()
    }
    rows = read_rows(settings.data.tables_dir, ChangeKind.SETTING) if snapshot.version >= 0 else None
    analyses, records = [], 0
    with LogReader(settings) as log:
        for partition in range(settings.kafka.partitions):
            begin, end = log.extent(partition)
            since = log.offset_at(partition, since_ms)
            begin = end if since is None else max(begin, since)
            held = _settings_at(settings, rows, partition, begin)
            analysis = PartitionAnalysis(partition, settings.kafka.partitions, overrides, held, elsewhere)
            for batch in log.batches(partition, begin, end):
                records += len(batch)
                for record in batch:
                    analysis.feed(record)
                on_progress(records)
            analyses.append(analysis)
    return LogAnalysis(analyses, records, analyses[0].runs[0].state.settings)


def _settings_at(settings: Settings, rows: Sequence[RouteChange] | None, partition: int, offset: int) -> FoldSettings:
    """What held just before a record; without tables, what the configuration says."""
    if rows is None:
        return FoldSettings().with_values(settings.liveness.model_dump())
    return FoldSettings().with_texts(values_before(rows, partition, offset))
