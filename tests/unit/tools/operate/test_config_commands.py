"""`config history`, `config show --running` and `kv export` on real tables; failures of `config set`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from namesrv_stream.cli import main
from namesrv_stream.client.commands.admin_commands import read_kv_config
from namesrv_stream.kafka import log_reader
from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.ports import choose_port
from namesrv_stream.route.events import KvDeleted, KvPut
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.tools.operate import operator_events
from tests.support.builders import BEGIN_MS, S1, Log, a_registration
from tests.support.tables import TablesOfLog

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Returns a function that runs the command line and returns (exit code, stdout, stderr)."""

    def run_main(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["namesrv-stream", *arguments, "--data-dir", str(tmp_path)])
        code = main()
        streams = capsys.readouterr()
        return code, streams.out, streams.err

    return run_main


@pytest.fixture
def tables(tmp_path: Path) -> TablesOfLog:
    """Tables in which ada has changed a setting."""
    tables = TablesOfLog(tmp_path)
    tables.log.change_settings(default_timeout_ms=60_000)
    tables.commit()
    return tables


def test_settings_history_shows_operator_time_and_values(run: Run, tables: TablesOfLog) -> None:
    code, out, _ = run("config", "history")
    assert code == 0
    expected = ["2023-11-14", "22:13:20Z", "liveness.default_timeout_ms", "120000", "60000", "ada", "0:0"]
    assert out.splitlines()[1].split() == expected
    found = json.loads(run("config", "history", "default_timeout_ms", "--json")[1])
    assert found == [
        {
            "at": "2023-11-14T22:13:20.000Z",
            "at_ms": BEGIN_MS,
            "key": "liveness.default_timeout_ms",
            "old": "120000",
            "new": "60000",
            "by": "ada",
            "offsets": {"0": 0},
        }
    ]
    assert json.loads(run("config", "history", "advanced.liveness.max_gap_ms", "--json")[1]) == []


def test_the_name_of_an_operator_cannot_control_a_terminal(run: Run, tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log.change_settings(default_timeout_ms=60_000, source="\x1b[2J[red]")
    tables.commit()
    for command in (("history",), ("show", "--running")):
        out = run("config", *command)[1]
        assert "\x1b" not in out
        assert r"\x1b[2J[red]" in out


def test_values_in_force_are_shown_next_to_the_file(run: Run, tables: TablesOfLog, tmp_path: Path) -> None:
    conf = tmp_path / "mine.toml"
    conf.write_text("[liveness]\ndefault_timeout_ms = 90000\n")
    code, out, _ = run("config", "show", "--running", "-c", str(conf))
    assert code == 0
    line = next(line for line in out.splitlines() if "default_timeout_ms" in line)
    assert line.split()[:4] == ["liveness.default_timeout_ms", "60000", "90000", str(conf)]
    assert line.endswith("by ada")
    found = json.loads(run("config", "show", "--running", "--json", "-c", str(conf))[1])
    assert found["liveness.default_timeout_ms"] == {
        "running": "60000",
        "partitions": {"60000": [0]},
        "configured": "90000",
        "configured_in": str(conf),
        "changed_at_ms": BEGIN_MS,
        "changed_by": "ada",
    }


def test_without_tables_defaults_apply_and_there_is_no_history(run: Run) -> None:
    assert json.loads(run("config", "history", "--json")[1]) == []
    _, out, err = run("config", "show", "--running", "--json")
    assert json.loads(out)["liveness.default_timeout_ms"]["running"] == "120000"
    assert err.startswith("no job runs on ")


def test_unchanged_value_needs_no_kafka(run: Run, tables: TablesOfLog) -> None:
    assert run("config", "set", "liveness.default_timeout_ms", "60000") == (
        0,
        "liveness.default_timeout_ms is already 60000\n",
        "",
    )


@pytest.mark.parametrize("key", ["default_timout_ms", "liveness.default_timout_ms", "remoting.listen_port"])
def test_history_of_a_fixed_setting_is_a_usage_error(run: Run, tables: TablesOfLog, key: str) -> None:
    code, out, err = run("config", "history", key)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert key in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("liveness.default_timeout_ms", "x"), 2, "liveness.default_timeout_ms"),
        (("liveness.default_timeout_ms", "5000", "--by", "config"), 2, "--by"),
        (("liveness.default_timeout_ms", "5000", "--set", "kafka.bootstrap_servers=127.0.0.1:1"), 3, "Kafka"),
        (("liveness.default_timeout_ms",), 2, "VALUE"),
    ],
)
def test_the_error_about_a_refused_setting_is_one_line(
    run: Run, arguments: tuple[str, ...], code: int, words: str
) -> None:
    found, out, err = run("config", "set", *arguments, "--set", "kafka.connect_timeout_ms=300")
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert words in err


def test_a_setting_that_does_not_exist_has_no_history(run: Run) -> None:
    code, out, err = run("config", "history", "nosuch")
    assert (code, out) == (2, "")
    assert "there is no such setting" in err


def test_all_settings_as_json(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_STREAM__ADMIN__ACCOUNTS__ops", "123456789")
    code, out, _ = run("config", "show", "--json", "--set", "kafka.extra.client_id=mine")
    found = json.loads(out)
    assert code == 0
    assert found["data.dir"] == {"value": str(tmp_path), "source": "flag --data-dir"}
    assert found["remoting.listen_port"] == {"value": 9876, "source": "default"}
    assert found["kafka.extra.client_id"] == {"value": "mine", "source": "flag --set"}
    assert "123456789" not in out


@pytest.mark.parametrize("words", [("config", "set", "default_timeout_ms", "70000"), ("guard", "release", "c0")])
def test_nothing_is_written_to_kafka_if_the_tables_belong_to_another_topic(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    tables = TablesOfLog(tmp_path)
    tables.log = Log(FoldSettings(guard_known_ms=0, guard_min_brokers=2))
    for number in range(3):
        tables.log.register(a_registration(f"10.0.0.{number}:1", broker_name=f"b{number}"))
    tables.log.pass_time(121_000)
    tables.commit()
    monkeypatch.setattr(log_reader, "read_extent", lambda settings, only: TopicExtent("another", {0: 0}, {0: 0}))
    for name in ("ensure_topics", "KafkaProducer"):  # neither may be used
        monkeypatch.delattr(operator_events, name)
    code, out, err = run(*words, "--set", "kafka.bootstrap_servers=127.0.0.1:1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Kafka's log is not the one of the tables; nothing was changed: Kafka's topic" in err
    assert "start with new tables" in err


def test_kv_entries_of_any_tables_are_exported_as_a_file_for_import(run: Run, tmp_path: Path) -> None:
    tables = TablesOfLog(tmp_path)
    for event in (KvPut(S1, "ns", "k", "old"), KvPut(S1, "ns", "gone", "v"), KvPut(S1, "other", "ü", "")):
        tables.log.say(event)
    tables.commit()
    tables.compact()
    tables.log.say(KvPut(S1, "ns", "k", "new"))
    tables.log.say(KvDeleted(S1, "ns", "gone"))
    tables.commit()
    expected = {"ns": {"k": "new"}, "other": {"ü": ""}}
    assert json.loads(run("kv", "export")[1]) == {"configTable": expected}
    tables.dir.rename(tmp_path / "tables.before")
    code, out, _ = run("kv", "export", "--tables", str(tmp_path / "tables.before"))
    (tmp_path / "kvConfig.json").write_text(out, encoding="utf-8")
    assert (code, read_kv_config(tmp_path / "kvConfig.json")) == (0, expected)
    code, out, err = run("kv", "export")
    assert (code, out) == (2, "")
    assert "has no route_changes" in err


def test_change_without_kafka_fails_at_once_with_a_hint_about_installations(run: Run) -> None:
    port = choose_port("127.0.0.1")
    code, _, err = run("config", "set", "default_timeout_ms", "60000", "--set", f"embedded_kafka.listen_port={port}")
    assert code == 3
    assert f"no embedded Kafka listens at 127.0.0.1:{port}" in err
    assert "--data-dir" in err
