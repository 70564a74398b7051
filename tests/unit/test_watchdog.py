"""What the parent of the server takes for a hang."""

import subprocess
import sys
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.watchdog import Stall, Step

_TIMEOUT_MS: Final = 5_000

_BEAT: Final = Step(500, True)
_STOPPED: Final = Step(1_000, False, "TTT")
_WAITS_FOR_LOCK: Final = Step(1_000, False, "SSS")
_WAITS_FOR_DISK: Final = Step(1_000, False, "DSS")
_COMPUTES: Final = Step(1_000, False, "RSS", 1_000)
_HALF_A_PROCESSOR: Final = Step(1_000, False, "RSS", 500)
_STARVED: Final = Step(1_000, False, "RSS")
#: The event loop waits for a lock, such as the interpreter's, whose holder gets no processor.
_HOLDER_STARVED: Final = Step(1_000, False, "SRS")
_ALMOST_STARVED: Final = Step(1_000, False, "RSS", 10)
_PARENT_LATE: Final = Step(60_000, False, "TTT")


@pytest.mark.parametrize(
    ("steps", "is_hang"),
    [
        pytest.param([_STOPPED] * 5, True, id="stopped"),
        pytest.param([_STOPPED] * 4, False, id="stopped, but not long enough"),
        pytest.param([_STOPPED] * 4 + [_BEAT] + [_STOPPED] * 4, False, id="stopped twice"),
        pytest.param([_WAITS_FOR_LOCK] * 5, True, id="lock"),
        pytest.param([_WAITS_FOR_DISK] * 5, True, id="disk"),
        pytest.param([_COMPUTES] * 5, True, id="endless loop"),
        pytest.param([_HALF_A_PROCESSOR] * 5, True, id="endless loop on a busy machine"),
        pytest.param([_STARVED] * 1_000, False, id="starved"),
        pytest.param([_HOLDER_STARVED] * 1_000, False, id="the holder of a lock starved"),
        pytest.param([_ALMOST_STARVED] * 99, False, id="too little processor time for a beat"),
        pytest.param([_ALMOST_STARVED] * 100, True, id="a second of processor time without a beat"),
        pytest.param([_PARENT_LATE] * 4, False, id="the parent was late, or the machine was suspended"),
        pytest.param([_STARVED] * 100 + [_STOPPED] * 4, False, id="starved, then stopped"),
    ],
)
def test_a_hang_is_time_without_a_beat_in_which_the_server_could_have_run(steps: list[Step], is_hang: bool) -> None:
    stall = Stall()
    for step in [_BEAT, *steps]:
        stall.add(step)
    assert (stall.ms >= _TIMEOUT_MS) is is_hang


def test_the_parent_of_a_server_imports_nothing_large() -> None:
    """It runs for as long as the server, on machines with little memory."""
    program = "import sys, namesrv_stream.__main__, namesrv_stream.watchdog; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    own = {name for name in run.stdout.split() if name.startswith("namesrv_stream.")}
    assert own == {f"namesrv_stream.{name}" for name in ("__main__", "errors", "logs", "processes", "watchdog")}
    assert set(run.stdout.split()).isdisjoint({"asyncio", "multiprocessing", "pydantic", "subprocess", "typer"})


_STEPS: Final = st.lists(
    st.builds(
        Step,
        st.floats(0, 100_000),
        st.booleans(),
        st.text("RSDTtZ", min_size=1, max_size=4),
        st.floats(0, 4_000),
    )
)


@given(_STEPS)
def test_a_beat_ends_a_stall_and_every_step_counts_for_at_most_a_second(steps: list[Step]) -> None:
    stall = Stall()
    for step in steps:
        before_ms = stall.ms
        stall.add(step)
        if step.has_beat:
            assert stall.ms == 0
        else:
            assert before_ms <= stall.ms <= before_ms + min(step.elapsed_ms, 1_000)


@given(_STEPS)
def test_a_server_that_waits_for_a_processor_hangs_only_after_a_fifth_of_the_time_on_it(steps: list[Step]) -> None:
    stall = Stall()
    for step in steps:
        stall.add(step._replace(has_beat=False, states="R" + step.states))
    assert stall.ms <= 5 * sum(step.cpu_ms for step in steps) + 1e-6
