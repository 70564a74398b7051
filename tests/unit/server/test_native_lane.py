"""Which lane a server uses, how this is reported, and behaviour of only one of the lanes."""

import time
from itertools import pairwise
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.remoting.command import ResponseCode
from namesrv_stream.remoting.frame import decode_frame, encode_frame
from namesrv_stream.server.native import lane as lane_module
from namesrv_stream.server.native import python_lane
from namesrv_stream.server.native.lane import open_lane
from namesrv_stream.server.native.python_lane import PythonLane
from namesrv_stream.settings import RemotingSettings, Settings
from namesrv_stream.tools.doctor import machine
from namesrv_stream.tools.doctor.finding import Grade, fine
from tests.support.lane_rig import LaneRig, a_query, handed_over, run
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


def test_the_python_lane_serves_a_limited_number_of_connections_per_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_lane, "_AT_ONCE", 2)
    monkeypatch.setattr(LaneRig, "kind", "python")

    async def test(server: LaneRig) -> None:
        peers = [await handed_over(server) for _ in range(7)]
        answered = [server.by_lane]
        for peer in peers:
            peer.send(encode_frame(a_query()))
        while answered[-1] < answered[0] + len(peers):
            await turn()
            answered.append(server.by_lane)
        assert max(after - before for before, after in pairwise(answered)) <= 2
        for peer in peers:
            assert decode_frame(await peer.frame()).code == ResponseCode.SUCCESS

    run(test)


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
