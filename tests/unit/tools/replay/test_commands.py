"""``replay`` and ``rebuild`` on the command line: errors before they begin."""

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from namesrv_stream.cli import main
from namesrv_stream.processes import job_lock
from tests.support.tables import TablesOfLog


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["namesrv-stream", *map(str, arguments)])
    return main()


def test_invalid_offset_or_time_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "replay", "--data-dir", tmp_path, "--from-offset", "soon") == 2
    assert "error: command line: --from-offset: 'soon'" in capsys.readouterr().err
    assert _run(monkeypatch, "replay", "--data-dir", tmp_path, "--to-time", "soon") == 2
    assert "error: command line: --to-time: 'soon'" in capsys.readouterr().err


def test_replay_without_tables_names_their_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "replay", "--data-dir", tmp_path) == 2
    err = capsys.readouterr().err
    assert "name another directory with --conf or --data-dir" in err
    assert "if the table was lost, `namesrv-stream rebuild` rebuilds it from the log" in err


def test_the_error_without_kafka_says_how_to_start_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    TablesOfLog(tmp_path)
    sets = ("--set", "embedded_kafka.listen_port=1", "--set", "kafka.connect_timeout_ms=1000")
    for command in ("replay", "rebuild"):
        assert _run(monkeypatch, command, "--data-dir", tmp_path, *sets) == 3
        assert "`namesrv-stream kafka`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "work", "remedy"),
    [
        (("replay",), "replay.replay", "a replay changes nothing"),
        (("rebuild",), "rebuild.rebuild", "the old tables stay until the new ones are verified"),
        (("repartition", "--partitions", "2"), "topic_repartition.repartition", "run the same command again"),
    ],
)
def test_interrupted_work_says_how_to_go_on(
    command: tuple[str, ...],
    work: str,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"namesrv_stream.tools.replay.{work}", interrupted)
    assert _run(monkeypatch, *command, "--data-dir", tmp_path) == 130
    *_, last = capsys.readouterr().err.splitlines()
    assert remedy in last.partition("interrupted: ")[2]


def test_rebuild_command_is_refused_while_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with job_lock(tmp_path / "tables"):
        assert _run(monkeypatch, "rebuild", "--data-dir", tmp_path) == 2
    error = capsys.readouterr().err
    assert "another job runs here" in error
    assert "stop it; Kafka must keep running" in error
