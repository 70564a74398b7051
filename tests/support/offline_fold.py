"""The fold of a whole Kafka topic without Spark: the rows that the tables must have."""

from namesrv_stream.kafka import LogReader
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.tools.replay.log_fold import LogFold, start_of_log


def places_of(records: list[Record]) -> dict[int, Place]:
    """How far a job is that has folded these."""
    return {r.partition: Place(r.offset + 1, fingerprint(r.at_ms, r.value)) for r in records}


def read_records(settings: Settings, until: dict[int, int] | None = None) -> list[Record]:
    """All records of the events topic in order of (partition, offset), up to its end or to given next offsets."""
    extent = read_extent(settings)
    with LogReader(settings) as log:
        return [
            record
            for partition, end in sorted((until or extent.end).items())
            for batch in log.batches(partition, extent.earliest[partition], end)
            for record in batch
        ]


def fold_offline(settings: Settings, until: dict[int, int] | None = None) -> list[RouteChange]:
    """The changes of the whole topic."""
    folds = [LogFold(start_of_log(p, settings.kafka.partitions)) for p in range(settings.kafka.partitions)]
    records = read_records(settings, until)
    return [c for p, fold in enumerate(folds) for c in fold.fold(r for r in records if r.partition == p)]


def as_row(change: RouteChange) -> dict[str, object]:
    """A change as polars reads its row: lists and dicts for tuples."""
    fields = change._asdict()
    if change.broker_addrs is not None:
        fields["broker_addrs"] = dict(change.broker_addrs)
    for name in ("clusters", "filter_servers"):
        fields[name] = None if fields[name] is None else list(fields[name])
    return fields
