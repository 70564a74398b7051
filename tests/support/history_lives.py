"""A history written as in years of operation: by processes that end or are killed, with compactions in between."""

import shutil
from pathlib import Path
from random import Random
from typing import NamedTuple

from pyspark.sql import SparkSession

from namesrv_stream.tables.history_upkeep import Upkeep
from namesrv_stream.tables.layout import HISTORY_SCHEMAS
from tests.support.builders import Log
from tests.support.history import HistoryRig
from tests.support.history_life import live_on

_PARTITIONS = 3
_RUNS = 4


class Lives(NamedTuple):
    """The history, and what it is of.

    Attributes:
        rig: Its logs go on beyond the history: the job has committed some changes that the history has not seen.
        seen: The logs as far as the history has read them.
    """

    rig: HistoryRig
    seen: list[Log]


def write_lives(spark: SparkSession, data_dir: Path) -> Lives:
    """Lives of three partitions, the first run in several steps; after each run the process ends."""
    rig = HistoryRig(spark, data_dir, _PARTITIONS, history__max_records=700, history__heartbeats_interval_ms=1)
    random = Random(20)
    before = data_dir / "before"
    for number in range(_RUNS):
        for log in rig.logs:
            live_on(log, random, 300 if number == 0 else 60)
        rig.commit()
        shutil.copytree(rig.dir, before)
        rig.write()
        if number in (1, 2):
            # As a kill after the commits of some tables leaves it: of any of them, for their order may change.
            for table in random.sample(list(HISTORY_SCHEMAS), 3):
                shutil.rmtree(rig.dir / table)
                shutil.copytree(before / table, rig.dir / table)
        shutil.rmtree(before)
        rig.compact()
        rig.restart()
        if number == 1:
            Upkeep(rig.settings).join_files()
    rig.write()  # what the last kill has left
    seen = [_copy(log) for log in rig.logs]
    for log in rig.logs:
        live_on(log, random, 20)
    rig.commit()
    return Lives(rig, seen)


def _copy(log: Log) -> Log:
    again = Log(partition=log.state.partition, partitions=log.state.partitions)
    for record in log.records:
        again.append(record.value, record.at_ms - again.now_ms)
    return again
