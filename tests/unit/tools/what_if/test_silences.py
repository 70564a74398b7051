"""The cause of a silence, derived from how the broker returned."""

from collections.abc import Callable

import pytest

from namesrv_stream.route.changes import Cause
from namesrv_stream.route.events import BrokerDisconnected, Origin
from namesrv_stream.tools.what_if.partition_analysis import Override, PartitionAnalysis
from namesrv_stream.tools.what_if.silences import Silence, Verdict
from tests.support.builders import DIRECT_ORIGIN, S1, S2, Log, a_registration, a_server, over

_BROKER = a_registration()
_OVERRIDES = [Override(10_000), Override(300_000)]


def _analysed(log: Log, on_over: Callable[[Silence], None] = lambda silence: None) -> PartitionAnalysis:
    analysis = PartitionAnalysis(0, 1, _OVERRIDES, on_over=on_over)
    for record in log.records:
        analysis.feed(record)
    return analysis


def _silences(log: Log) -> list[Silence]:
    over: list[Silence] = []
    left = _analysed(log, over.append).silences.open
    return over + left


def _verdicts(log: Log) -> list[Verdict]:
    return [silence.verdict for silence in _silences(log)]


def _closed(server: Origin, connection: int, reason: str) -> BrokerDisconnected:
    origin = over(server, connection)
    return BrokerDisconnected(origin, _BROKER.broker_name, _BROKER.live_key, f"connection x {reason}")


def _registered() -> Log:
    log = Log()
    log.register(_BROKER, connection=1)
    return log


def test_a_broker_heard_again_over_the_same_connection_is_alive() -> None:
    log = _registered()
    log.pass_time(30_000)
    log.heard(_BROKER, connection=1)
    assert _verdicts(log) == [Verdict.ALIVE]


def test_a_broker_heard_again_over_another_connection_while_the_first_was_open_is_restarted() -> None:
    log = _registered()
    log.pass_time(30_000)
    log.heard(_BROKER, connection=2)
    assert _verdicts(log) == [Verdict.RESTARTED]


def test_a_broker_heard_again_over_another_connection_after_it_expired_is_unclear() -> None:
    log = _registered()
    log.pass_time(130_000)  # its server has closed the connection
    log.heard(_BROKER, connection=2)
    assert _verdicts(log) == [Verdict.UNCLEAR]


def test_restart_of_a_server_is_no_evidence_about_brokers() -> None:
    log = _registered()
    log.pass_time(30_000)
    log.started(a_server("s1", 2))
    log.heard(_BROKER, a_server("s1", 2), connection=1)
    assert _verdicts(log) == [Verdict.ALIVE]


def test_broker_heard_first_at_another_server_is_unclear() -> None:
    log = _registered()
    log.pass_time(30_000, S1, S2)
    log.heard(_BROKER, S2, connection=1)
    assert _verdicts(log) == [Verdict.UNCLEAR]


def test_the_silence_of_a_broker_whose_server_restarted_counts_as_one_of_a_live_broker() -> None:
    log = _registered()
    log.pass_time(30_000)
    log.started(a_server("s1", 2))
    log.heard(_BROKER, a_server("s1", 2), connection=1)
    assert _analysed(log).gaps.tallies["c0"].longest_ms == 30_000


def test_broken_connection_at_one_server_is_no_evidence_while_another_has_its_own() -> None:
    log = _registered()
    log.register(_BROKER, S2, connection=7)
    log.say(_closed(S1, 1, "closed by the peer"))
    log.pass_time(30_000, S1, S2)
    log.heard(_BROKER, S2, connection=7)
    assert _verdicts(log) == [Verdict.ALIVE]


def test_a_broker_that_closed_all_connections_restarted_even_if_another_server_hears_it_next() -> None:
    log = _registered()
    log.say(_closed(S1, 1, "closed by the peer"))
    log.pass_time(30_000, S1, S2)
    log.heard(_BROKER, S2, connection=7)
    log.register(_BROKER, S2, connection=7)
    assert _verdicts(log) == [Verdict.RESTARTED]


def test_a_broker_that_had_unregistered_was_not_silent() -> None:
    log = _registered()
    log.unregister(_BROKER)
    log.pass_time(600_000)
    log.register(_BROKER)
    assert "c0" not in _analysed(log).gaps.tallies


def test_a_broker_that_unregistered_and_returned_is_restarted() -> None:
    log = _registered()
    log.unregister(_BROKER)
    log.pass_time(1_000)
    log.heard(_BROKER, connection=1)
    assert _verdicts(log) == [Verdict.RESTARTED]


def test_broker_that_expired_and_was_never_heard_again_is_gone() -> None:
    log = _registered()
    log.pass_time(130_000)
    assert _verdicts(log) == [Verdict.GONE]


def test_broker_whose_connection_closed_and_that_was_never_heard_again_is_gone() -> None:
    log = _registered()
    log.pass_time(30_000)
    log.say(_closed(S1, 1, "closed by the peer"))
    assert _verdicts(log) == [Verdict.GONE]


def test_broker_that_is_live_when_the_log_ends_is_unclear() -> None:
    log = _registered()
    log.pass_time(30_000)
    assert _verdicts(log) == [Verdict.UNCLEAR]


def test_brokers_of_direct_publishers_have_no_connection_that_could_close() -> None:
    log = Log()
    log.register(_BROKER, DIRECT_ORIGIN)
    for _ in range(60):
        log.tick(500, a_server("job"))
    log.register(_BROKER, DIRECT_ORIGIN)
    assert _verdicts(log) == [Verdict.ALIVE]


def test_a_silence_has_the_time_of_the_removal_in_each_run() -> None:
    log = _registered()
    log.pass_time(130_000)
    (silence,) = _silences(log)
    assert {run: (end.observed_ms, end.cause) for run, end in silence.ends.items()} == {
        0: (120_500, Cause.EXPIRED),
        1: (10_500, Cause.EXPIRED),
    }
    assert (silence.seen_ms(1), silence.seen_ms(0), silence.seen_ms(2)) == (10_500, 120_500, None)


def test_failure_missed_by_a_run_is_detected_when_the_broker_returns() -> None:
    log = _registered()
    log.pass_time(30_000)
    log.heard(_BROKER, connection=2)
    (silence,) = _silences(log)
    assert silence.seen_ms(0) == 30_000


@pytest.mark.parametrize(("reason", "verdict"), [("closed by the peer", "restarted"), ("idle for too long", "unclear")])
def test_only_a_connection_that_the_broker_closed_shows_a_restart(reason: str, verdict: str) -> None:
    log = _registered()
    log.pass_time(30_000)
    log.say(_closed(S1, 1, reason))
    log.heard(_BROKER, connection=2)
    assert _verdicts(log) == [verdict]
