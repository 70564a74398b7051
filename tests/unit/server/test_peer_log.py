"""Log lines that peers cause: the first ones are printed, others are counted, and no cause hides another."""

import logging

import pytest

from namesrv_stream.server.peer_log import FEW, INTERVAL_MS, PeerLog
from tests.support.server_rig import Rig

LOGGER = logging.getLogger("namesrv_stream.test")
REFUSED = "connection refused peer=%s limit=%d"


def refuse(peer_log: PeerLog, times: int, text: str = REFUSED, kind: str = "") -> None:
    for n in range(times):
        peer_log.log(LOGGER, logging.WARNING, text, f"10.0.0.1:{n}", 7, kind=kind)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings since the last call. Other levels may be enabled or not."""
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return lines


def test_the_first_lines_are_printed_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    refuse(PeerLog(), FEW)
    assert logged(caplog) == [f"connection refused peer=10.0.0.1:{n} limit=7" for n in range(FEW)]


def test_further_lines_are_counted_and_printed_as_one_line_with_the_last_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer_log = PeerLog()
    refuse(peer_log, FEW + 1_000)
    peer_log.beat(INTERVAL_MS - 1)
    assert len(logged(caplog)) == FEW
    peer_log.beat(INTERVAL_MS)
    assert logged(caplog) == [
        f"1000 more within 60 s, the last: connection refused peer=10.0.0.1:{FEW + 999} limit=7",
    ]
    peer_log.beat(3 * INTERVAL_MS)
    assert logged(caplog) == []


def test_a_lasting_flood_prints_few_lines_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    peer_log = PeerLog()
    for minute in range(10):
        for second in range(60):
            peer_log.beat(minute * INTERVAL_MS + second * 1_000)
            refuse(peer_log, 50)
    assert len(logged(caplog)) == 10 * FEW + 9


def test_after_an_interval_the_next_line_is_printed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    peer_log = PeerLog()
    refuse(peer_log, FEW)
    peer_log.beat(INTERVAL_MS)
    assert len(logged(caplog)) == FEW
    refuse(peer_log, 1)
    assert logged(caplog) == ["connection refused peer=10.0.0.1:0 limit=7"]


def test_no_cause_hides_another(caplog: pytest.LogCaptureFixture) -> None:
    peer_log = PeerLog()
    refuse(peer_log, 100)
    refuse(peer_log, 1, kind="another")
    refuse(peer_log, 1, "connection closed peer=%s after=%d")
    assert len(logged(caplog)) == FEW + 2


def test_the_number_of_hidden_lines_is_printed_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    peer_log = PeerLog()
    refuse(peer_log, FEW + 3)
    logged(caplog)
    peer_log.end()
    peer_log.end()
    assert [line.partition(",")[0] for line in logged(caplog)] == ["3 more within 0 s"]


def test_a_bug_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise RuntimeError("a bug")
    except RuntimeError:
        PeerLog().log(LOGGER, logging.ERROR, "request failed peer=%s", "10.0.0.1:1", is_fault=True)
    assert caplog.records[0].exc_info
    assert "a bug" in caplog.text


async def test_connections_that_are_refused_or_break_the_protocol_in_a_loop_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(max_connections=50)
    rig.talk()
    held = [rig.connect() for _ in range(45)]
    for _ in range(500):
        rig.connect()  # one too many: a tenth is for brokers
    for peer in held:
        peer.close()
    for _ in range(500):
        peer = rig.connect()
        peer.deliver(b"GET / HTTP/1.1\r\n\r\n")
    assert len(logged(caplog)) == 2 * FEW
    assert (rig.connection_events("rejected"), rig.connection_events("broken")) == (500, 500)
    rig.peer_log.beat(INTERVAL_MS)
    assert [line.split()[0] for line in logged(caplog)] == ["495", "495"]
