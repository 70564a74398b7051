"""The history after changes of some partitions were removed before it had read them, while the job continues."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from namesrv_stream.tables.history_files import read_mark
from namesrv_stream.tables.layout import ROUTE_ARCHIVE
from tests.support.builders import a_registration
from tests.support.history_oracle import sessions
from tests.support.history_rig import HistoryRig
from tests.support.history_views import BROKER_SESSIONS, ROUTE_HISTORY
from tests.support.random_events import names_in_partition

pytestmark = [pytest.mark.spark]

_DAY_MS = 86_400_000
_PARTITIONS = 2


def test_partition_continues_from_a_route_state_beyond_its_changes(spark: SparkSession, tmp_path: Path) -> None:
    """One partition has lost rows, and its ``route_state`` is newer than the ``route_changes`` that the run reads."""
    flags = {"streaming__changes_retention_ms": _DAY_MS, "history__heartbeats_interval_ms": 1}
    rig = HistoryRig(spark, tmp_path, _PARTITIONS, history__max_records=3, **flags)
    names = [names_in_partition(partition, _PARTITIONS, 1)[0] for partition in range(_PARTITIONS)]
    brokers = [[a_registration(f"10.0.{p}.{n}:10911", n, broker_name=names[p]) for n in range(3)] for p in (0, 1)]
    for log, own in zip(rig.logs, brokers, strict=True):
        for registration in own:
            log.register(registration, after_ms=1_000)
    rig.commit_and_write()
    lossy, whole = rig.logs
    # The history process does not run for days.
    lossy.unregister(brokers[0][2])
    rig.commit()
    lossy.tick(20 * _DAY_MS)
    lossy.register(brokers[0][2])
    rig.commit()
    rig.compact()
    rig.clean_up()
    whole.now_ms = lossy.now_ms
    for registration in brokers[1]:
        whole.unregister(registration)
        whole.register(registration, after_ms=1_000)
    rig.commit()
    # The job writes this state after the run has read route_changes.
    lossy.unregister(brokers[0][1])
    lossy.register(brokers[0][1], after_ms=1_000)
    rig.compact()
    rig.write()
    assert _mark(rig) == {0: len(lossy.records), 1: len(whole.records)}
    rig.commit_and_write()
    lossy.unregister(brokers[0][0])
    rig.commit_and_write()
    ends = {p: len(log.records) for p, log in enumerate(rig.logs)}
    assert _mark(rig) == ends
    for table, begin, end in ((ROUTE_HISTORY, "valid_from", "valid_to"), (BROKER_SESSIONS, "up_at", "down_at")):
        _assert_no_overlap(rig.rows(table), begin, end)
    found = [row for row in rig.rows(BROKER_SESSIONS) if row["partition"] == 1]
    assert found == sessions(whole)


def _mark(rig: HistoryRig) -> dict[int, int]:
    mark = read_mark(rig.storage / ROUTE_ARCHIVE)
    assert mark is not None
    return dict(mark.next_offsets)


def _assert_no_overlap(rows: list[dict[str, Any]], begin: str, end: str) -> None:
    of_key = defaultdict(list)
    for row in rows:
        key = tuple(row.get(name) for name in ("kind", "cluster", "broker_name", "topic", "broker_addr", "key"))
        of_key[key].append((row[begin], row[end]))
    for key, spans in of_key.items():
        ordered = sorted(spans, key=lambda span: span[0])
        ends = [last for _, last in ordered[:-1]]
        assert all(last is not None and last <= first for last, (first, _) in zip(ends, ordered[1:], strict=True)), key
