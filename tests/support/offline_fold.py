"""Folds a whole Kafka topic without Spark: the changes that the tables must contain."""

from namesrv_stream.kafka import LogReader
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.fold.folded_log import Place, fingerprint
from namesrv_stream.route.fold.step import Record
from namesrv_stream.settings import Settings
from namesrv_stream.tools.replay.log_fold import LogFold, start_of_log


def places_of(records: list[Record]) -> dict[int, Place]:
    """Return the progress of a job that has folded these records."""
    return {r.partition: Place(r.offset + 1, fingerprint(r.at_ms, r.value)) for r in records}


def read_records(settings: Settings, until: dict[int, int] | None = None) -> list[Record]:
    """Read the events topic in order of (partition, offset), up to its end or to the given next offsets."""
    extent = read_extent(settings)
    with LogReader(settings) as log:
        return [
            record
            for partition, end in sorted((until or extent.end).items())
            for batch in log.batches(partition, extent.earliest[partition], end)
            for record in batch
        ]


def fold_offline(settings: Settings, until: dict[int, int] | None = None) -> list[RouteChange]:
    """Return all changes of the topic."""
    folds = [LogFold(start_of_log(p, settings.kafka.partitions)) for p in range(settings.kafka.partitions)]
    records = read_records(settings, until)
    return [c for p, fold in enumerate(folds) for c in fold.fold(r for r in records if r.partition == p)]


def as_row(change: RouteChange) -> dict[str, object]:
    """Convert a change to the row that polars reads: lists and dicts instead of tuples."""
    fields = change._asdict()
    if change.broker_addrs is not None:
        fields["broker_addrs"] = dict(change.broker_addrs)
    for name in ("clusters", "filter_servers"):
        fields[name] = None if fields[name] is None else list(fields[name])
    return fields
