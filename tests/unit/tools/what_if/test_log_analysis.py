"""What-if reads records that Kafka no longer has from the archive, reports it, and begins after gaps."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from namesrv_stream.tools.replay.log_archive import log_opener
from namesrv_stream.tools.tool_options import Source
from namesrv_stream.tools.what_if import what_if_report
from namesrv_stream.tools.what_if.log_analysis import LogAnalysis, analyse_log
from namesrv_stream.tools.what_if.partition_analysis import Override
from namesrv_stream.tools.what_if.what_if_report import cluster_reports
from tests.support.builders import S1, Log, a_registration
from tests.support.history_tables import HistoryOfLogs, write_archive
from tests.support.log_source import opens, source_of


@pytest.fixture
def tables(tmp_path: Path) -> HistoryOfLogs:
    """Tables of ten minutes of three brokers; one is silent for 50 s and keeps its connection."""
    log = Log()
    fleet = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(3)]
    log.started(S1)
    for registration in fleet:
        log.register(registration)
    for beat in range(60):
        log.pass_time(10_000)
        for number, registration in enumerate(fleet):
            if number or beat not in range(30, 34):
                log.heard(registration)
    tables = HistoryOfLogs(tmp_path, log)
    tables.commit()
    return tables


def _analyse(tables: HistoryOfLogs, source: Source, kafka_begin: int = 0, since_ms: int = 0) -> LogAnalysis:
    opener = log_opener(source, open_kafka=opens(source_of(*tables.logs, earliest=kafka_begin)))
    return analyse_log(tables.settings, [Override(20_000)], since_ms, open_log=opener)


def _clusters(analysis: LogAnalysis) -> object:
    return what_if_report.report_json(analysis, cluster_reports(analysis.partitions, analysis.limits))["clusters"]


def _text_of(analysis: LogAnalysis) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(what_if_report.as_text(analysis, cluster_reports(analysis.partitions, analysis.limits)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_figures_from_the_archive_equal_those_from_kafka(tables: HistoryOfLogs) -> None:
    records = tables.logs[0].records
    expected = _analyse(tables, Source.KAFKA)
    reports = cluster_reports(expected.partitions, expected.limits)
    (clusters,) = what_if_report.report_json(expected, reports)["clusters"].values()
    assert [run["false"] for run in clusters["runs"]] == [0, 1]
    write_archive(tables.settings, records[:900])
    for source, kafka_begin in ((Source.ARCHIVE, 0), (Source.AUTO, 800)):
        found = _analyse(tables, source, kafka_begin)
        assert _clusters(found) == _clusters(expected)
        assert (found.records, found.observed_ms) == (expected.records, expected.observed_ms)
        middle = 900 if source is Source.ARCHIVE else kafka_begin
        line = f"partition 0: records 0 to {middle - 1} from broker_events, {middle} to {len(records) - 1} from Kafka"
        assert line in _text_of(found)


def test_analysis_begins_at_an_instant_in_the_archive(tables: HistoryOfLogs) -> None:
    records = tables.logs[0].records
    write_archive(tables.settings, records)
    assert _analyse(tables, Source.AUTO, 900, records[500].at_ms).records == len(records) - 500
    assert _analyse(tables, Source.AUTO, 900, records[-1].at_ms + 1).records == 0


def test_analysis_begins_after_a_gap_and_reports_it(tables: HistoryOfLogs) -> None:
    records = tables.logs[0].records
    write_archive(tables.settings, [*records[:300], *records[400:900]])
    found = _analyse(tables, Source.AUTO, 800)
    assert found.records == len(records) - 400
    text = _text_of(found)
    assert "partition 0: the records 300 to 399 are missing: Kafka removed them while the history did not run" in text
    assert "earlier records are not used either: the analysis begins at 400" in text
    after = _analyse(tables, Source.AUTO, 800, records[450].at_ms)
    assert "not used either" not in _text_of(after)
