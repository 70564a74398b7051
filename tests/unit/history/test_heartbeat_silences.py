"""Effects that other timeouts would have had on past heartbeats."""

from pathlib import Path

import pytest

from namesrv_stream.history.sessions import Silences, silences
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.table_errors import NotInHistory
from tests.support.builders import S1, S2, Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.tables import settings_in


def _beats(log: Log, addr: str, name: str, *gaps_ms: int) -> None:
    registration = a_registration(addr, broker_name=name)
    for gap_ms in gaps_ms:
        log.beat(registration, after_ms=gap_ms)


def _asked(tmp_path: Path, log: Log, *timeouts_ms: int) -> Silences:
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    return silences(tables.settings, log.now_ms - 3_600_000, log.now_ms + 120_000, timeouts_ms)


def test_brokers_that_were_silent_for_longer_are_counted(tmp_path: Path) -> None:
    log = Log(FoldSettings(default_timeout_ms=3_000_000))
    log.register(a_registration())
    _beats(log, "10.0.0.1:10911", "broker-a", 10_000, 20_000, 150_000, 10_000, 150_000, 100_000)
    log.tick(after_ms=200_000)
    found = _asked(tmp_path, log, 5_000, 15_000, 100_000, 149_999, 150_000)
    assert [(t["brokers"], t["expiries"] > 0) for t in found.timeouts] == [
        *((1, True), (1, True), (1, True), (1, True)),
        (0, False),
    ]
    assert found.timeouts[3]["expiries"] == 2
    assert found.brokers == 1
    assert [(s["broker_name"], s["longest_ms"]) for s in found.longest] == [("broker-a", 150_000)]


def test_a_minute_with_only_the_first_heartbeat_has_no_silence(tmp_path: Path) -> None:
    log = Log(begin_ms=60_000 * 28_000_000 + 50_000)
    log.register(a_registration())
    _beats(log, "10.0.0.1:10911", "broker-a", *[15_000] * 12)
    log.tick(after_ms=61_000)
    assert _asked(tmp_path, log, 15_000).timeouts == [{"timeout_ms": 15_000, "expiries": 0, "brokers": 0}]


def test_expiries_and_heartbeats_have_the_same_period(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    _beats(log, "10.0.0.1:10911", "broker-a", 10_000, 10_000)
    tables = HistoryOfLogs(tmp_path, log)
    counted = tables.ends()
    last_ms = log.now_ms
    for _ in range(140):
        log.tick(after_ms=1_000)
    assert "expired" in {change.cause for change in log.output.changes}
    tables.write_all()
    found = silences(tables.settings, log.now_ms - 3_600_000, log.now_ms, [60_000])
    assert (found.expired, found.until_ms) == (1, log.now_ms)
    tables.write_minutes(counted)
    found = silences(tables.settings, log.now_ms - 3_600_000, log.now_ms, [60_000])
    assert (found.expired, found.until_ms) == (0, last_ms)


def test_silence_that_ended_a_session_does_not_count(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    _beats(log, "10.0.0.1:10911", "broker-a", 10_000, 10_000)
    log.unregister(a_registration())
    log.register(a_registration(), after_ms=600_000)
    _beats(log, "10.0.0.1:10911", "broker-a", 10_000, 70_000)
    log.tick(after_ms=120_000)
    found = _asked(tmp_path, log, 60_000, 90_000)
    assert [t["brokers"] for t in found.timeouts] == [1, 0]


def test_a_broker_that_another_server_hears_is_not_silent(tmp_path: Path) -> None:
    log = Log(FoldSettings(default_timeout_ms=3_000_000))
    registration = a_registration()
    log.register(registration, S1)
    log.register(registration, S2)
    for _ in range(5):
        log.beat(registration, S2, after_ms=60_000)
    log.beat(registration, S1)
    log.tick(after_ms=120_000)
    found = _asked(tmp_path, log, 59_000, 61_000)
    assert [t["brokers"] for t in found.timeouts] == [1, 0]


def test_missing_tables_are_reported_with_their_writer(tmp_path: Path) -> None:
    with pytest.raises(NotInHistory, match="history-job"):
        silences(settings_in(tmp_path), 0, 1, [1_000])
