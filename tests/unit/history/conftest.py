"""The log of one morning with many events, and its tables, which are written once per session."""

from collections.abc import Iterator

import duckdb
import pytest

from namesrv_stream.route.events import TopicDeleted, WritePermChanged
from namesrv_stream.route.model import Registration
from tests.support.builders import RW, S1, Log, a_registration
from tests.support.history_tables import HistoryOfLogs

HOUR_MS = 3_600_000
BROKER_B = a_registration("10.0.0.2:10911", broker_name="broker-b")
SLAVE_A = a_registration("10.0.0.3:10911", 1, topics={})
LONER = a_registration("10.9.0.1:10911", broker_name="loner", cluster="c1", topics={"Other": RW, "baseTopic": RW})
BROKER_A = a_registration()


def morning_log() -> Log:
    """Return the log of three hours of a small cluster.

    Minute 0: broker-a, its slave and broker-b register in c0, loner in c1. 60: broker-b falls silent and expires at 62;
    it returns at 70. 90: the write permission of broker-a is wiped; it is restored at 95. 100 to 140: loner restarts
    five times. 150: all brokers of c0 unregister; they register again 4 minutes later. 170: ``TopicTest`` is deleted;
    registrations restore it at 172. The log ends at 180.
    """
    log = Log()
    log.started(S1)
    alive = [BROKER_A, SLAVE_A, BROKER_B, LONER]
    for registration in alive:
        log.register(registration, after_ms=1_000)
    _pass(log, alive, 60)
    alive.remove(BROKER_B)
    _pass(log, alive, 10)
    alive.append(BROKER_B)
    log.register(BROKER_B, connection=2)
    _pass(log, alive, 20)
    log.say(WritePermChanged(S1, "broker-a", False))
    _pass(log, alive, 5, beats=False)
    log.say(WritePermChanged(S1, "broker-a", True))
    _pass(log, alive, 5)
    for connection in range(2, 7):
        log.disconnect(LONER, connection=connection - 1)
        _pass(log, alive[:2] + alive[3:], 2)
        log.register(LONER, connection=connection)
        _pass(log, alive, 6)
    _pass(log, alive, 10)
    for registration in (BROKER_A, SLAVE_A, BROKER_B):
        log.unregister(registration, connection=2 if registration is BROKER_B else 1)
        log.tick(500)
    _pass(log, [LONER], 4)
    for registration in (BROKER_A, SLAVE_A, BROKER_B):
        log.register(registration, connection=3, after_ms=2_000)
    _pass(log, alive, 16)
    log.say(TopicDeleted(S1, "TopicTest", None))
    log.tick(500)
    _pass(log, alive, 2, beats=False)
    for registration in (BROKER_A, SLAVE_A, BROKER_B):
        log.register(registration, connection=3)
    _pass(log, alive, 8)
    return log


def _pass(log: Log, alive: list[Registration], minutes: int, *, beats: bool = True) -> None:
    """Let minutes pass: these brokers send a heartbeat every 30 s, and the server ticks every second."""
    for _ in range(minutes * 2):
        for registration in alive:
            log.beat(registration)
        log.pass_time(30_000, step_ms=1_000)


@pytest.fixture(autouse=True, scope="module")
def _started_duckdb() -> Iterator[None]:
    """Starts DuckDB once per module, because that takes longer than most queries. Connections share no tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "connect", duckdb.connect().cursor)
        yield


@pytest.fixture(autouse=True)
def _no_other_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets commands run although something listens at the default port of this machine."""
    monkeypatch.setattr("namesrv_stream.settings.installation.refuse_other_installation", lambda *of: None)


@pytest.fixture(scope="session")
def morning(tmp_path_factory: pytest.TempPathFactory) -> HistoryOfLogs:
    """The tables of ``morning_log``: ``route_changes`` is complete, the history tables lack the last minutes."""
    log = morning_log()
    tables = HistoryOfLogs(tmp_path_factory.mktemp("morning"), log)
    tables.commit()
    tables.write({0: len(log.records) * 93 // 100})
    return tables
