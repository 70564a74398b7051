"""``broker_events``, written by Spark and with joined files, equals the log in every byte and timestamp."""

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from namesrv_stream.tables.layout import BROKER_EVENTS
from namesrv_stream.tools.replay.log_archive import ArchivedEvents, log_opener
from namesrv_stream.tools.replay.replay import Replay, ReplayRange, replay
from namesrv_stream.tools.replay.replay_commands import parse_offsets
from namesrv_stream.tools.tool_options import Source
from namesrv_stream.tools.what_if import what_if_report
from namesrv_stream.tools.what_if.log_analysis import analyse_log
from namesrv_stream.tools.what_if.partition_analysis import Override
from namesrv_stream.tools.what_if.what_if_report import cluster_reports
from tests.support.history_rig import HistoryRig
from tests.support.log_source import opens, source_of
from tests.support.random_events import append_random_events
from tests.support.spark import sql_name

pytestmark = pytest.mark.spark

#: Invalid UTF-8 (lone surrogate, overlong NUL, truncated sequence, beyond the last code point), then valid UTF-8.
_BYTES = (b"\xed\xa0\x80", b"\xc0\x80", b'{"kind":"\xe2\x82', b"\xf4\x90\x80\x80", b"\x00", "\ufeff{}\u20ac".encode())


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> HistoryRig:
    """Two partitions, archived in several steps as by the history process; then all files are joined."""
    rig = HistoryRig(spark, tmp_path, partitions=2, history__max_records=300)
    for seed in range(2):
        for log in rig.logs:
            append_random_events(log, Random(seed * 2 + log.state.partition), 200)
            for value in _BYTES:
                log.append(value, 1)
        rig.commit()
        rig.compact()
        rig.write()
    spark.sql(f"OPTIMIZE {sql_name(rig.dir / BROKER_EVENTS)}").collect()
    return rig


def _replay(rig: HistoryRig, source: Source) -> Replay:
    wanted = ReplayRange(parse_offsets("a", ("0",)), parse_offsets("b", ()), None)
    opener = log_opener(source, open_kafka=opens(source_of(*rig.logs)))
    return replay(rig.settings, wanted, lambda partition, done, total: None, opener)


def _what_if(rig: HistoryRig, source: Source) -> dict[str, object]:
    opener = log_opener(source, open_kafka=opens(source_of(*rig.logs)))
    overrides = [Override(2_000), Override(6_000)]
    analysis = analyse_log(rig.settings, overrides, 0, open_log=opener)
    found = what_if_report.report_json(analysis, cluster_reports(analysis.partitions, analysis.limits))
    del found["read_from"]
    return found


@pytest.mark.timeout(900)  # it takes minutes on a busy machine
def test_archive_equals_the_log_and_gives_the_same_replay_and_what_if(rig: HistoryRig) -> None:
    archive = ArchivedEvents.open(rig.settings)
    for log in rig.logs:
        partition, end = log.state.partition, len(log.records)
        assert archive.spans(partition) == [(0, end)]
        assert [record for batch in archive.batches(partition, 0, end) for record in batch] == log.records

    of_kafka, of_archive = _replay(rig, Source.KAFKA), _replay(rig, Source.ARCHIVE)
    assert of_kafka.is_equal
    assert of_archive.digest == of_kafka.digest
    assert [p.rows for p in of_archive.partitions] == [p.rows for p in of_kafka.partitions]
    assert all(p.is_state_compared and p.dead_letters for p in of_archive.partitions)
    assert {piece.store.value for p in of_archive.partitions for piece in p.read_from} == {"archive"}

    assert _what_if(rig, Source.ARCHIVE) == _what_if(rig, Source.KAFKA)
