"""The command line: exit codes, one line for each mistake, and what `-p` prints."""

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
    """Runs the command line in this process; returns (exit code, stdout, stderr)."""

    def run_main(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["namesrv-stream", *arguments])
        code = main()
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run_main


def test_version_is_printed(run: Run) -> None:
    assert run("--version") == (0, f"{__version__}\n", "")


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


def test_short_flags_stand_for_settings(run: Run) -> None:
    lines = run("config", "show", "--listen-port", "0", "--http-port", "1")[1].splitlines()
    assert "listen_port = 0  # flag --listen-port" in lines
    assert "listen_port = 1  # flag --http-port" in lines


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "kafka.partition=2"], "flag --set: kafka.partition: unknown key"),
        (["--listen-port", "x"], "flag --listen-port: remoting.listen_port:"),
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
