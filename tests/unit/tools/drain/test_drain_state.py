"""When a broker is safe to stop, from what servers and broker answered."""

from collections.abc import Mapping

from namesrv_stream.tools.drain.drain_state import DrainState, Observation, PutCounter, Step

POLL_MS, QUIET_MS = 30_000, 10_000
SERVERS = ("a:9876", "b:9876")


def begun() -> DrainState:
    return DrainState(POLL_MS, QUIET_MS, wiped_at_ms=0)


def seen(
    at_s: float,
    puts: int | None = 7,
    *,
    writable: Mapping[str, int] | None = None,
    unanswered: Mapping[str, str] | None = None,
    started: str = "1",
) -> Observation:
    unanswered = unanswered or {}
    topics = {addr: (writable or {}).get(addr, 0) for addr in SERVERS if addr not in unanswered}
    counter = None if puts is None else PutCounter(started, puts)
    at_ms = round(at_s * 1000)
    return Observation(at_ms, at_ms, topics, unanswered, counter, "" if counter else "connection refused")


def after(*observations: Observation) -> DrainState:
    state = begun()
    for observation in observations:
        state = state.after(observation)
    return state


def test_a_broker_is_safe_two_poll_intervals_after_no_server_offers_it_for_writing() -> None:
    early = after(seen(1), seen(60.9))
    assert early.step is Step.POLLING
    assert early.obstacles() == ["clients may have the old route for another 100 ms"]
    late = early.after(seen(61))
    assert (late.step, late.obstacles()) == (Step.SAFE, [])


def test_the_wait_begins_when_the_last_server_follows() -> None:
    state = after(seen(1, writable={"b:9876": 3}))
    assert state.step is Step.WIPING
    assert state.obstacles()[0] == "name server b:9876 answers with the write permission for 3 topics"
    assert not state.must_wipe
    assert state.after(seen(2)).after(seen(61.5)).step is Step.POLLING
    assert state.after(seen(2)).after(seen(62)).step is Step.SAFE


def test_a_broker_that_stores_messages_is_not_safe() -> None:
    busy = after(seen(1), seen(58, puts=8), seen(61, puts=8))
    assert busy.step is Step.QUIETING
    assert busy.obstacles() == ["the broker has stored no message for 3.0 s of 10.0 s"]
    assert busy.after(seen(68, puts=9)).step is Step.QUIETING
    assert busy.after(seen(67.9, puts=8)).step is Step.QUIETING
    assert busy.after(seen(68, puts=8)).step is Step.SAFE


def test_a_restarted_broker_must_store_no_message_for_the_whole_wait_again() -> None:
    state = after(seen(1), seen(61, puts=7, started="2"))
    assert state.step is Step.QUIETING
    assert state.after(seen(71, puts=7, started="2")).step is Step.SAFE


def test_a_broker_that_does_not_answer_is_not_safe() -> None:
    state = after(seen(1), seen(61, puts=None))
    assert state.step is Step.QUIETING
    assert state.obstacles() == ["the broker does not answer (connection refused)"]
    assert state.after(seen(62)).step is Step.SAFE
    assert state.after(seen(62, puts=8)).step is Step.QUIETING


def test_a_server_that_does_not_answer_leaves_the_broker_unsafe() -> None:
    away = {"b:9876": "connection refused"}
    state = after(seen(1), seen(61, unanswered=away))
    assert state.obstacles() == ["name server b:9876 does not answer (connection refused)"]
    assert state.after(seen(62)).step is Step.SAFE
    never = after(seen(1, unanswered=away), seen(100, unanswered=away))
    assert never.step is Step.WIPING


def test_a_permission_that_a_registration_restores_is_wiped_again_and_the_wait_restarts() -> None:
    state = after(seen(1), seen(40, writable={"a:9876": 12}))
    assert (state.step, state.must_wipe) == (Step.WIPING, True)
    state = state.wiped_again(41_000)
    assert (state.must_wipe, state.wipes) == (False, 2)
    state = state.after(seen(42))
    assert state.after(seen(101.9)).step is Step.POLLING
    assert state.after(seen(102)).step is Step.SAFE


def test_a_permission_that_is_still_visible_after_five_seconds_is_wiped_again() -> None:
    assert not after(seen(4.9, writable={"a:9876": 1})).must_wipe
    assert after(seen(5, writable={"a:9876": 1})).must_wipe


def test_the_time_that_an_observation_takes_does_not_count_as_waiting_time() -> None:
    counter = PutCounter("1", 7)
    slow = [Observation(began, began + 3_000, dict.fromkeys(SERVERS, 0), {}, counter) for began in (1_000, 63_999)]
    state = begun().after(slow[0]).after(slow[1])
    assert (state.hidden_for_ms, state.step) == (59_999, Step.POLLING)


def test_nothing_is_safe_before_the_first_observation() -> None:
    assert begun().step is Step.WIPING
    assert begun().obstacles() == ["nothing is known yet"]
    assert begun().quiet_for_ms is None
