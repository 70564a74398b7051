"""Which lane a server uses, how this is reported, and behaviour of only one of the lanes."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.remoting.command import ResponseCode
from namesrv_stream.remoting.frame import ResponseTemplate, decode_frame, encode_frame
from namesrv_stream.server.native import lane as lane_module
from namesrv_stream.server.native import python_lane
from namesrv_stream.server.native.lane import Lane, open_lane
from namesrv_stream.server.native.python_lane import PythonLane
from namesrv_stream.settings import RemotingSettings, Settings
from namesrv_stream.tools.doctor import machine
from namesrv_stream.tools.doctor.finding import Grade, fine
from tests.support.lane_rig import LANES, LaneRig, a_query, handed_over, run
from tests.support.server_rig import turn


def test_a_connection_closed_while_the_lane_returns_it_still_sends_its_answer() -> None:
    async def test(server: LaneRig) -> None:
        peer = await handed_over(server)
        (connection,) = [c for c in server.rig.connections if c.peer.startswith("127.")]
        before = server.by_lane
        peer.send(encode_frame(a_query()) + encode_frame(a_query("NoSuchTopic")))
        while server.by_lane == before:  # the lane returns it in its own thread: the event loop does not run here
            if peer.writer.transport.get_write_buffer_size():
                await turn()
        connection.close("a test")
        assert (await peer.frame())[4:].startswith(b"{")
        assert await peer.end() == b""

    run(test)


@pytest.mark.parametrize(("queries", "most"), [(1, 4), (20, 20)])
def test_the_python_lane_answers_a_limited_number_of_queries_per_iteration(
    queries: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_lane, "_AT_ONCE", 8)
    monkeypatch.setattr(python_lane, "_READ_AT_ONCE", 1)
    monkeypatch.setattr(LaneRig, "kind", "python")

    async def test(server: LaneRig) -> None:
        peers = [await handed_over(server) for _ in range(7)]
        answered = [server.by_lane]
        for peer in peers:
            peer.send(encode_frame(a_query()) * queries)
        while answered[-1] < answered[0] + queries * len(peers):
            await turn()
            answered.append(server.by_lane)
        assert max(after - before for before, after in pairwise(answered)) <= most
        for peer in peers:
            for _ in range(queries):
                assert decode_frame(await peer.frame()).code == ResponseCode.SUCCESS

    run(test)


@pytest.fixture(params=LANES)
def lane(request: pytest.FixtureRequest) -> Lane:
    return LANES[request.param](64 << 20)


def _frame(topic: str, form: int = 0) -> bytes:
    return encode_frame(replace(a_query(topic), ext_fields={"topic": topic, "form": f"{form}"}))[4:]


def _know(lane: Lane, topic: str, form: int = 0) -> None:
    lane.know(_frame(topic, form), topic, ResponseTemplate(40, b'{"code":0,"opaque":', b"}"), 0)


def _processor_time_s(action: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> float:
    """Return the least processor time of three calls; ``prepare`` is called before each."""
    times = []
    for _ in range(3):
        prepare()
        began_s = time.thread_time()
        action()
        times.append(time.thread_time() - began_s)
    return min(times)


def test_the_time_of_a_query_does_not_grow_with_the_stored_forms_of_its_topic(lane: Lane) -> None:
    frames = [_frame("many", form) for form in range(-2_000, 0)]

    def ask() -> None:
        assert not any(lane.find(frame, 0) for frame in frames)

    before_s = _processor_time_s(ask)
    for form in range(20_000):
        _know(lane, "many", form)
    assert _processor_time_s(ask) < 4 * before_s


@pytest.mark.parametrize("forgotten", [70_000, 10_000, 2_000])
def test_topics_are_forgotten_within_ten_milliseconds_of_processor_time(forgotten: int, lane: Lane) -> None:
    names = {f"topic-{number}" for number in range(forgotten)}

    def store() -> None:
        for number in range(12_000):
            _know(lane, f"topic-{number}")

    assert _processor_time_s(lambda: lane.forget(names), store) < 0.010
    assert lane.find(_frame("topic-0"), 0) is None


@pytest.fixture
def library_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the compiled library in a build that has none."""
    path = tmp_path / "libnative_lane.so"
    monkeypatch.setattr(lane_module, "_FILE", path)
    return path


def test_a_build_without_the_library_uses_the_python_lane_and_reports_no_fault(library_file: Path) -> None:
    lane, status = open_lane(RemotingSettings())
    assert isinstance(lane, PythonLane)
    assert (status.is_active, status.is_fault) == (False, False)
    assert status.text.startswith("not in this build: ")
    assert status.text.endswith("; the Python lane answers instead, more slowly")
    with pytest.raises(ConfigError, match=r"remoting\.native_lane: not in this build"):
        open_lane(RemotingSettings(native_lane="on"))


def test_the_setting_chooses_the_python_lane_or_none() -> None:
    says_so = "off: advanced.remoting.native_lane says so"
    assert open_lane(RemotingSettings(native_lane="off")) == (None, (False, says_so, False))
    lane, status = open_lane(RemotingSettings(native_lane="python"))
    assert isinstance(lane, PythonLane)
    assert status == (False, f"{says_so}; the Python lane answers instead, more slowly", False)


def test_without_epoll_there_is_no_python_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("select.epoll")
    assert open_lane(RemotingSettings(native_lane="python"))[0] is None


@pytest.mark.parametrize(
    ("of", "reason"), [("no library", "file too short"), ("another release", "undefined symbol: lane_start")]
)
def test_a_library_that_cannot_be_used_is_a_fault(library_file: Path, of: str, reason: str) -> None:
    if of == "no library":
        library_file.touch()
    else:
        library_file.symlink_to("/lib/x86_64-linux-gnu/libc.so.6")
    lane, status = open_lane(RemotingSettings())
    assert isinstance(lane, PythonLane)
    assert status.is_fault
    assert reason in status.text
    found = machine.native_lane(Settings())
    assert found.grade is Grade.WARNING
    assert reason in found.text
    required = Settings(remoting=RemotingSettings(native_lane="on"))
    with pytest.raises(ConfigError, match=reason):
        open_lane(required.remoting)
    assert machine.native_lane(required).grade is Grade.FAULT


def test_doctor_says_whether_there_is_a_lane(library_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.native_lane(Settings()).grade is Grade.NOTE
    for chosen in ("off", "python"):
        assert machine.native_lane(Settings(remoting=RemotingSettings(native_lane=chosen))).grade is Grade.FINE
    monkeypatch.undo()
    assert machine.native_lane(Settings()) == fine("native lane", "active")


def test_the_thread_of_a_lane_that_is_not_stopped_ends_when_the_lane_is_deleted() -> None:
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())
    lane, _ = open_lane(RemotingSettings())
    (thread,) = set(tasks.iterdir()) - before
    assert lane is not None
    assert thread.joinpath("comm").read_text(encoding="ascii") == "native-lane\n"
    del lane
    while thread.exists():  # It is joined; the kernel takes a moment longer.
        time.sleep(0.001)
