"""The installation that a command uses: flags, environment, run files, and their priority."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from namesrv_stream.client.commands.query_options import chosen_name_servers
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.route.events import KvPut, Origin
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.settings import load_settings
from namesrv_stream.settings.installation import HISTORY_BEHIND_MS, Configuration, check_conf, late_history
from namesrv_stream.settings.layers import Flag
from namesrv_stream.tools.operate.operator_events import broadcast


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("NAMESRV_ADDR", "NAMESRV_STREAM_DATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def pid() -> Iterator[int]:
    """A process with a command line of the product."""
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "namesrv_stream", "up"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def _run(data: Path, pid: int, *, kafka: int = 19092) -> None:
    """Write run files of a server and of Kafka into ``data``."""
    run = data / "run"
    run.mkdir(parents=True)
    (run / "serve.json").write_text(json.dumps({"remoting": "0.0.0.0:19876", "http": "[::]:19880", "pid": pid}))
    (run / "kafka.json").write_text(json.dumps({"kafka": f"127.0.0.1:{kafka}", "pid": pid}))


def _up(data: Path, pid: int, effective: str) -> None:
    """Write run files of ``up`` with these settings."""
    _run(data, pid)
    (data / "run" / "ports.json").write_text(json.dumps({"remoting": 19876, "pid": pid}))
    (data / "run" / "effective.toml").write_text(effective)


def test_a_named_directory_gives_addresses_and_settings(tmp_path: Path, pid: int) -> None:
    _up(tmp_path / "d", pid, '[data]\ndir = "/elsewhere"\n[kafka]\npartitions = 5\n[http]\nlisten_port = 1\n')
    configuration = Configuration(data_dir=str(tmp_path / "d"))
    assert configuration.name_server() == "127.0.0.1:19876"
    assert configuration.http_server() == "http://127.0.0.1:19880"
    settings = configuration.load().settings
    assert (settings.data.dir, settings.kafka.partitions) == (tmp_path / "d", 5)
    assert Configuration(None, str(tmp_path / "d"), ["kafka.partitions=6"]).load().settings.kafka.partitions == 6


def test_a_setting_of_a_running_up_with_its_default_value_has_no_source(tmp_path: Path, pid: int) -> None:
    _up(tmp_path / "d", pid, "[kafka]\npartitions = 5\n[liveness]\nguard_min_brokers = 5\n")
    sources = Configuration(data_dir=str(tmp_path / "d")).load().sources
    assert sources == {
        "data.dir": "flag --data-dir",
        "kafka.partitions": str(tmp_path / "d" / "run" / "effective.toml"),
    }


def test_only_addresses_are_taken_from_parts_that_were_started_separately(tmp_path: Path, pid: int) -> None:
    _run(tmp_path / "d", pid)
    configuration = Configuration(data_dir="d")
    assert configuration.name_server() == "127.0.0.1:19876"
    assert configuration.load().settings.embedded_kafka.listen_port == 19092
    other = Configuration(None, "d", ["kafka.bootstrap_servers=k:1"]).load().settings
    assert (other.kafka.bootstrap_servers, other.embedded_kafka.listen_port) == ("k:1", 9092)


def test_run_files_of_ended_processes_are_ignored(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    _up(tmp_path / "d", process.pid, "[kafka]\npartitions = 5\n")
    configuration = Configuration(data_dir="d")
    assert (configuration.name_server(), configuration.http_server()) == ("127.0.0.1:9876", "http://127.0.0.1:9880")
    assert configuration.load().settings.kafka.partitions != 5


def test_file_has_priority_over_run_files_except_for_unset_ports(tmp_path: Path, pid: int) -> None:
    _up(tmp_path / "d", pid, "[kafka]\npartitions = 5\n")
    conf = tmp_path / "mine.toml"
    conf.write_text('[data]\ndir = "d"\n[remoting]\nlisten_port = 29876\n[http]\nlisten_port = 0\n')
    configuration = Configuration(conf)
    assert configuration.name_server() == "127.0.0.1:29876"
    assert configuration.http_server() == "http://127.0.0.1:19880"
    assert configuration.load().settings.kafka.partitions != 5


def test_the_variable_names_the_directory_unless_a_file_setting_or_flag_does(
    tmp_path: Path, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_STREAM_DATA", str(tmp_path / "d"))
    _run(tmp_path / "d", pid)
    assert Configuration().name_server() == "127.0.0.1:19876"
    conf = tmp_path / "mine.toml"
    conf.write_text('[data]\ndir = "of-file"\n')
    assert load_settings(conf).settings.data.dir == tmp_path / "of-file"
    monkeypatch.setenv("NAMESRV_STREAM__DATA__DIR", "of-setting")
    assert load_settings().settings.data.dir == tmp_path / "of-setting"
    assert Configuration(data_dir="of-flag").load().settings.data.dir == tmp_path / "of-flag"


def test_flags_override_addresses_in_the_environment_and_these_override_directories(
    tmp_path: Path, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(tmp_path / "data", pid)
    assert chosen_name_servers(None, Configuration()) == "127.0.0.1:19876"  # ./data, where something runs
    monkeypatch.setenv("NAMESRV_STREAM_DATA", str(tmp_path / "empty"))
    assert chosen_name_servers(None, Configuration()) == "127.0.0.1:9876"
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")
    assert chosen_name_servers(None, Configuration()) == "ns:9876"
    assert chosen_name_servers(None, Configuration(data_dir="data")) == "127.0.0.1:19876"
    assert chosen_name_servers("other:1", Configuration(data_dir="data")) == "other:1"


def test_an_error_about_a_cluster_name_after_option_c_suggests_the_right_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean --cluster east"):
        check_conf(Path("east"), has_cluster=True)
    check_conf(Path("east"), has_cluster=False)
    check_conf(None, has_cluster=True)


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match="file is not a directory"):
        Configuration(data_dir=str(file)).load()

    def refuse(path: Path, **_: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)  # tests may run as root, which can read everything
    with pytest.raises(ConfigError, match="cannot be read by this user"):
        Configuration(data_dir=str(tmp_path)).load()


def test_the_default_address_of_another_installation_is_refused(
    tmp_path: Path, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def listens(address: tuple[str, int], timeout: float) -> socket.socket:
        asked.append(address)
        return socket.socket()

    monkeypatch.setattr("namesrv_stream.settings.installation.socket.create_connection", listens)
    assert Configuration().http_server() == "http://127.0.0.1:9880"  # without tables, it is no installation
    (tmp_path / "data" / "tables").mkdir(parents=True)
    for ask in (Configuration().http_server, Configuration(data_dir="data").name_server):
        with pytest.raises(ConfigError, match=r"nothing runs on .*data, but another installation listens at 127.0.0.1"):
            ask()
    with pytest.raises(ConfigError, match="NAMESRV_STREAM_DATA"):
        broadcast(Configuration().load().settings, KvPut(Origin("", 0), "a", "b", "c"), FoldedLog("", {}))
    assert asked == [("127.0.0.1", 9880), ("127.0.0.1", 9876), ("127.0.0.1", 9092)]
    assert Configuration(sets=["http.listen_port=19880"]).http_server() == "http://127.0.0.1:19880"
    _run(tmp_path / "data", pid)
    assert Configuration().http_server() == "http://127.0.0.1:19880"


@pytest.mark.parametrize("parts", [("job", "history-job"), ("serve",)])
def test_a_history_that_is_behind_is_late_even_if_the_job_has_just_started(
    parts: tuple[str, ...], tmp_path: Path, pid: int
) -> None:
    settings = load_settings(environ={}, flags=[Flag("test", "data.dir", str(tmp_path))]).settings
    for part in parts:
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / f"{part}.json").write_text(json.dumps({"pid": pid}))
    now_ms = SystemClock().now_ms()
    assert late_history(settings, now_ms - HISTORY_BEHIND_MS, now_ms) == ""
    assert late_history(settings, now_ms - HISTORY_BEHIND_MS - 1, now_ms).startswith("it is behind")
    assert late_history(settings, 0, now_ms) == ""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("history-job.json", "its process is catching up, or does not write"),
        ("starting/history-job.json", "its process is starting"),
        ("other.json", "no history-job runs on this data directory"),
    ],
)
def test_the_text_about_a_late_history_says_whether_its_process_runs(
    file: str, text: str, tmp_path: Path, pid: int
) -> None:
    settings = load_settings(environ={}, flags=[Flag("test", "data.dir", str(tmp_path))]).settings
    (tmp_path / "run" / "starting").mkdir(parents=True)
    for name in ("serve.json", file):
        (tmp_path / "run" / name).write_text(json.dumps({"pid": pid}))
    assert late_history(settings, 1, 2 * HISTORY_BEHIND_MS) == f"it is behind: {text}"


def test_a_late_history_is_awaited_while_up_waits_for_the_job(tmp_path: Path, pid: int) -> None:
    settings = load_settings(environ={}, flags=[Flag("test", "data.dir", str(tmp_path))]).settings
    (tmp_path / "run").mkdir()
    for name in ("serve.json", "ports.json"):
        (tmp_path / "run" / name).write_text(json.dumps({"pid": pid}))
    expected = "it is behind: `up` starts its process after the job"
    assert late_history(settings, 1, 2 * HISTORY_BEHIND_MS) == expected
    (tmp_path / "run" / "job.json").write_text(json.dumps({"pid": pid}))
    assert "no history-job runs" in late_history(settings, 1, 2 * HISTORY_BEHIND_MS)


def test_a_history_is_not_late_while_nothing_runs(tmp_path: Path) -> None:
    settings = load_settings(environ={}, flags=[Flag("test", "data.dir", str(tmp_path))]).settings
    assert late_history(settings, 1, 2 * HISTORY_BEHIND_MS) == ""
