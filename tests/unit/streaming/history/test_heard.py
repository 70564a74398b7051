"""Who was heard, read from files of events: all that the fold takes, and few of the events in memory at a time."""

import json
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import BrokerRegistered
from namesrv_stream.route.fold import Record
from namesrv_stream.streaming.history.event_clocks import read_clocks
from namesrv_stream.streaming.history.heard import heard
from namesrv_stream.tables.delta.file_ranges import FileRanges
from tests.support.builders import S1, Log, a_registration
from tests.support.history_events import event_files

_MANY = 1_000
_VALUE_BYTES = 100_000

#: What the reading process, which has done nothing else, has allocated at most: by Arrow, by Python; and the hearings.
_READS_ALL = """
import json, sys, tracemalloc
from pathlib import Path
import pyarrow as pa
from namesrv_stream.streaming.history.event_clocks import read_clocks
from namesrv_stream.tables.delta.file_ranges import FileRanges
from namesrv_stream.streaming.history.heard import heard
from namesrv_stream.tables.schema.history_columns import BROKER_EVENTS, HISTORY_SCHEMAS
from namesrv_stream.tables.storage import Folder

folder, end = Path(sys.argv[1]), {0: int(sys.argv[2])}
events = FileRanges.open(Folder(folder), HISTORY_SCHEMAS[BROKER_EVENTS])
clocks = read_clocks(events, {0: 0}, end, {})
tracemalloc.start()
found = heard(events, {0: 0}, end, clocks)
by_python = tracemalloc.get_traced_memory()[1]
print(json.dumps([pa.default_memory_pool().max_memory(), by_python, found.height]))
"""


def _heard(events: FileRanges, begin: int, end: int) -> list[tuple[int, str]]:
    clocks = read_clocks(events, {0: begin}, {0: end}, {})
    found = heard(events, {0: begin}, {0: end}, clocks).sort("offset", "item")
    return found.select("offset", "broker_addr").rows()


def test_of_large_registrations_few_are_in_memory_at_a_time(tmp_path: Path) -> None:
    fields = orjson.loads(encode_event(BrokerRegistered(S1, a_registration())))
    values = (orjson.dumps(fields | {"unknown": f"{number}-" * (_VALUE_BYTES // 4)}) for number in range(100, 1_100))
    records = [Record(0, offset, offset, value) for offset, value in enumerate(values)]
    event_files(tmp_path, records[: _MANY // 2], records[_MANY // 2 :])
    arguments = [sys.executable, "-c", _READS_ALL, str(tmp_path), str(_MANY)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=120)
    by_arrow, by_python, hearings = json.loads(done.stdout)
    assert hearings == _MANY
    assert by_arrow < _MANY * _VALUE_BYTES / 2
    assert by_python < _MANY * _VALUE_BYTES / 4


def test_only_the_events_of_the_range_are_told_of_whatever_file_they_are_in(tmp_path: Path) -> None:
    log = Log()
    for number in range(200):
        log.register(a_registration(f"10.0.0.{number}:10911"), after_ms=1)
    events = event_files(tmp_path, log.records[:90], log.records[90:])
    assert _heard(events, 40, 170) == [(number, f"10.0.0.{number}:10911") for number in range(40, 170)]
    assert _heard(events, 70, 70) == []


@pytest.mark.parametrize("wrong", [{"topics": {"t": [8, 8]}}, {"schema_version": 2}, {"broker_id": "0"}])
def test_a_registration_that_the_fold_does_not_take_is_not_heard(tmp_path: Path, wrong: dict[str, object]) -> None:
    log = Log()
    log.register(a_registration())
    value = orjson.loads(encode_event(BrokerRegistered(S1, a_registration("10.0.0.2:10911"))))
    log.append(orjson.dumps(value | wrong))
    assert [letter.offset for letter in log.dead_letters] == [1]
    assert _heard(event_files(tmp_path, log.records), 0, 2) == [(0, "10.0.0.1:10911")]
