"""The command line: exit codes, one line for each usage error, and the output of `-p`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from namesrv_stream import __version__
from namesrv_stream.cli import main
from namesrv_stream.settings import load_settings

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Returns a function that runs the command line in this process and returns (exit code, stdout, stderr)."""

    def run_main(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["namesrv-stream", *arguments])
        code = main()
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run_main


def test_version_is_printed(run: Run) -> None:
    assert run("--version") == (0, f"{__version__}\n", "")


def test_the_command_line_imports_no_large_library() -> None:
    """Commands start quickly, and ``serve`` chooses how pyarrow is imported."""
    large = ("deltalake", "duckdb", "jinja2", "kafka", "numpy", "polars", "pyarrow", "pyspark", "uvicorn")
    program = f"import sys, namesrv_stream.cli; print([name for name in {large} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"


def test_help_lists_the_commands(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert all(command in out for command in ("up", "serve", "job", "kafka", "agent", "config"))


@pytest.mark.parametrize("arguments", [[], ["config"], ["nonsense"], ["up", "--nonsense"], ["up", "--set"]])
def test_bad_usage_ends_with_exit_code_2(run: Run, arguments: list[str]) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert len(err.splitlines()) <= 1


@pytest.mark.parametrize("command", ["up", "serve", "job", "kafka"])
def test_p_prints_a_configuration_that_is_read_back_the_same(run: Run, tmp_path: Path, command: str) -> None:
    code, out, err = run(command, "-p", "--data-dir", str(tmp_path), "--set", "kafka.partitions=3")
    assert (code, err) == (0, "")
    (tmp_path / "printed.toml").write_text(out)
    settings = load_settings(tmp_path / "printed.toml", {}).settings
    assert (settings.data.dir, settings.kafka.partitions) == (tmp_path, 3)


def test_conf_and_c_are_the_same_flag(run: Run, tmp_path: Path) -> None:
    conf = tmp_path / "mine.toml"
    conf.write_text("[kafka]\npartitions = 4\n")
    assert run("serve", "-p", "-c", str(conf)) == run("serve", "-p", "--conf", str(conf))
    assert f"partitions = 4  # {conf}" in run("config", "show", "-c", str(conf))[1]


@pytest.mark.parametrize("command", ["up", "serve", "job", "kafka"])
def test_p_prints_the_settings_of_a_properties_file_and_its_warnings(run: Run, tmp_path: Path, command: str) -> None:
    conf = tmp_path / "namesrv.properties"
    conf.write_text("listenPort=19876\nserverWorkerThreads=16\n")
    code, out, err = run(command, "-c", str(conf), "-p")
    assert code == 0
    assert f"listen_port = 19876  # {conf} (listenPort)" in out
    assert err.startswith(f"warning: {conf}: serverWorkerThreads: has no effect here")
    assert err.count("\n") == 1
    assert "warning" not in out


def test_config_show_prints_the_same_warnings(run: Run, tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.properties"
    conf.write_text("serverWorkerThreads=16\n")
    assert "serverWorkerThreads" in run("config", "show", "-c", str(conf))[2]


def test_a_command_that_runs_logs_the_warnings_of_its_file(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # ends `up` at its first step
    conf = tmp_path / "namesrv.properties"
    conf.write_text("serverWorkerThreads=16\n")
    assert run("up", "-c", str(conf), "--data-dir", str(tmp_path / "data"))[0] == 3
    assert [record.levelname for record in caplog.records if "serverWorkerThreads" in record.message] == ["WARNING"]


def test_no_secret_is_printed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_STREAM__ADMIN__ACCOUNTS__ops", "Tr0ub4dor-1")
    conf = tmp_path / "mine.toml"
    conf.write_text('[kafka.extra]\nsasl_plain_password = "Tr0ub4dor-2"\n')
    for arguments in (["serve", "-p"], ["up", "-p"], ["config", "show"], ["serve", "--set", "logs.level=LOUD"]):
        code, out, err = run(*arguments, "-c", str(conf))
        assert code == (2 if "--set" in arguments else 0)
        assert "Tr0ub4dor" not in out + err


def test_short_flags_stand_for_settings(run: Run) -> None:
    ports = ("--remoting-port", "0", "--http-port", "1", "--kafka-port", "2")
    lines = run("config", "show", *ports)[1].splitlines()
    assert "listen_port = 0  # flag --remoting-port" in lines
    assert "listen_port = 1  # flag --http-port" in lines
    assert "listen_port = 2  # flag --kafka-port" in lines


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "kafka.partition=2"], "flag --set: kafka.partition: unknown key"),
        (["--remoting-port", "x"], "flag --remoting-port: remoting.listen_port: expected a whole number, not 'x'"),
        (["--http-port", "-1"], "flag --http-port: http.listen_port: must be at least 0, not '-1'"),
        (["--set", "http.tls=maybe"], "flag --set: http.tls: expected true or false, not 'maybe'"),
        (["--set", "logs.level=LOUD"], "flag --set: logs.level: expected 'DEBUG'"),
        (["--set", "liveness.default_timeout_ms=0"], "flag --set: liveness.default_timeout_ms: must be greater than 0"),
        (["--conf", "/etc"], "/etc: --conf: is a directory, not a file"),
        (["--conf", "/etc/hostname"], "/etc/hostname: --conf: the name of the file must end in one of .toml"),
        (["--conf", "/absent.toml"], "/absent.toml: --conf:"),
    ],
)
def test_a_configuration_error_is_one_line_and_exit_code_2(run: Run, arguments: list[str], words: str) -> None:
    code, out, err = run("up", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {words}")
    assert err.count("\n") == 1


def test_a_missing_prerequisite_is_one_line_and_exit_code_3(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, out, err = run("up", "--data-dir", str(tmp_path / "data"))
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "Java 17 JDK" in err
    assert not (tmp_path / "data").exists()
