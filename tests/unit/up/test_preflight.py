"""The checks before the first part starts, and the lock of the data directory."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import Settings, load_settings, parse_set_flag
from namesrv_stream.up.preflight import acquire_run_lock, require_writable, with_fixed_ports, write_effective

_HOLD = "import os, sys; sys.stdin.read()"


def _hold(lock: int) -> "subprocess.Popen[bytes]":
    """Start a process that holds the lock until its stdin is closed, like a child of `up`."""
    return subprocess.Popen([sys.executable, "-c", _HOLD], stdin=subprocess.PIPE, pass_fds=[lock])


def _release(holder: "subprocess.Popen[bytes]") -> None:
    assert holder.stdin is not None
    holder.stdin.close()
    holder.wait(timeout=30)


def _dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=30)
    return process.pid


def test_a_second_up_is_refused_and_the_first_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run" / "up.lock"
    lock = acquire_run_lock(path, pytest.fail)
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "namesrv-stream"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        first.stdout.readline()  # before, it might not have its command line yet
        path.write_text(f"{first.pid}\n")
        with pytest.raises(ConfigError) as refusal:
            acquire_run_lock(path, pytest.fail)
    os.close(lock)
    assert (refusal.value.exit_code, refusal.value.key) == (2, "data.dir")
    assert str(tmp_path) in refusal.value.reason
    assert f"process {first.pid}" in refusal.value.reason


def test_the_lock_is_free_once_it_is_closed(tmp_path: Path) -> None:
    for _ in range(2):
        os.close(acquire_run_lock(tmp_path / "run" / "up.lock", pytest.fail))


@pytest.mark.parametrize("has_another_its_pid", [False, True])
def test_a_new_up_waits_for_the_children_of_a_killed_one(tmp_path: Path, has_another_its_pid: bool) -> None:
    path = tmp_path / "run" / "up.lock"
    lock = acquire_run_lock(path, pytest.fail)
    child = _hold(lock)
    os.close(lock)
    path.write_text(f"{os.getpid() if has_another_its_pid else _dead_pid()}\n")
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        _release(child)

    os.close(acquire_run_lock(path, say))
    assert len(said) == 1
    assert "previous run" in said[0]


def test_children_that_do_not_end_are_not_waited_for_forever(tmp_path: Path) -> None:
    path = tmp_path / "run" / "up.lock"
    lock = acquire_run_lock(path, pytest.fail)
    child = _hold(lock)
    os.close(lock)
    path.write_text(f"{_dead_pid()}\n")
    try:
        with pytest.raises(ConfigError):
            acquire_run_lock(path, lambda _: None, wait_s=0.1)
    finally:
        _release(child)


def test_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as refusal:
        acquire_run_lock(tmp_path / "file" / "run" / "up.lock", pytest.fail)
    assert refusal.value.key == "data.dir"


def _settings(tmp_path: Path, *flags: str) -> Settings:
    ports_any = ["remoting.listen_port=0", "http.listen_port=0", "embedded_kafka.listen_port=0"]
    texts = [f"data.dir={tmp_path}", "remoting.listen_host=127.0.0.1", *ports_any, *flags]
    return load_settings(None, {}, [parse_set_flag(text) for text in texts]).settings


def _ports(settings: Settings) -> tuple[int, int, int]:
    return settings.remoting.listen_port, settings.http.listen_port, settings.embedded_kafka.listen_port


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which a process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def test_port_0_is_replaced_by_a_free_port_that_stays_the_same_at_the_next_start(tmp_path: Path) -> None:
    first = _ports(with_fixed_ports(_settings(tmp_path)))
    assert len({*first, 0}) == 4
    assert _ports(with_fixed_ports(_settings(tmp_path))) == first


def test_a_stored_port_that_another_process_uses_now_is_replaced(tmp_path: Path) -> None:
    first = with_fixed_ports(_settings(tmp_path))
    with socket.create_server(("127.0.0.1", first.remoting.listen_port)):
        second = with_fixed_ports(_settings(tmp_path))
    assert second.remoting.listen_port != first.remoting.listen_port
    assert second.http == first.http


@pytest.mark.parametrize("section", ["remoting", "http", "embedded_kafka"])
def test_a_port_in_use_is_named_with_its_key(tmp_path: Path, taken_port: int, section: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        with_fixed_ports(_settings(tmp_path, f"{section}.listen_port={taken_port}"))
    assert (refusal.value.exit_code, refusal.value.key) == (2, f"{section}.listen_port")
    assert f"127.0.0.1:{taken_port}" in refusal.value.reason


def test_all_ports_in_use_are_named_at_once_with_the_listening_process_and_the_flags(
    tmp_path: Path, taken_port: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = int(listener.getsockname()[1])
        flags = [f"remoting.listen_port={taken_port}", f"embedded_kafka.listen_port={other}"]
        with pytest.raises(ConfigError) as refusal:
            with_fixed_ports(_settings(tmp_path, *flags))
    assert refusal.value.key == "remoting.listen_port, embedded_kafka.listen_port"
    for port, flag in ((taken_port, "--remoting-port"), (other, "--kafka-port")):
        taken = re.escape(f"127.0.0.1:{port}: Address already in use by process {os.getpid()} (")
        assert re.search(rf"{taken}[^;]*\); {flag} PORT chooses another port", refusal.value.reason)


def test_an_address_of_another_machine_is_named_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        with_fixed_ports(_settings(tmp_path, "http.listen_host=192.0.2.1", "http.listen_port=9880"))
    assert refusal.value.key == "http.listen_host"


def test_no_kafka_port_is_chosen_with_an_external_kafka(tmp_path: Path, taken_port: int) -> None:
    flags = ["kafka.bootstrap_servers=kafka.example:9092", f"embedded_kafka.listen_port={taken_port}"]
    assert with_fixed_ports(_settings(tmp_path, *flags)).embedded_kafka.listen_port == taken_port


def test_a_missing_data_directory_is_created(tmp_path: Path) -> None:
    require_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_data_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as refusal:
        require_writable(tmp_path / "file" / "data")
    assert (refusal.value.exit_code, refusal.value.key) == (2, "data.dir")


def test_file_is_refused_as_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file is a file, not a directory"):
        require_writable(tmp_path / "file")


def test_a_data_directory_on_a_read_only_file_system_is_refused() -> None:
    with pytest.raises(ConfigError) as refusal:
        require_writable(Path("/proc/namesrv-stream"))
    assert refusal.value.key == "data.dir"


def test_the_effective_configuration_is_read_back_the_same(tmp_path: Path) -> None:
    settings = with_fixed_ports(_settings(tmp_path, "streaming.extra.spark.ui.enabled=true"))
    assert load_settings(write_effective(settings), {}).settings == settings
