"""Replay and rebuild with a real Kafka, a real job, and a server that follows the tables."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from namesrv_stream.processes import read_run_file
from namesrv_stream.route.events import BrokerRegistered, KvPut, Origin, ServerStarted, TopicDeleted
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.layout import ROUTE_CHANGES
from tests.support.builders import RW, a_registration
from tests.support.command_line import Finished, run_command
from tests.support.kafka import REPOSITORY
from tests.support.processes import Process, wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.spark import (
    EventProducer,
    event_producer,
    own_settings,
    wait_folded,
    written_changes,
)
from tests.support.table_edits import rewrite_rows

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark]

_DEADLINE_S = 180.0
_S1 = Origin("s1", 1, 1)
_GET_ROUTEINFO_BY_TOPIC = 105


@pytest.fixture
def settings(kafka_settings: Settings, tmp_path: Path) -> Settings:
    """Settings with a new topic and data directory."""
    settings = own_settings(
        kafka_settings, tmp_path / "data", partitions=2, driver_memory="512m", compaction_interval_ms=2_000
    )
    settings.data.dir.mkdir()
    settings.data.dir.joinpath("test.toml").write_text(to_toml(settings))
    return settings


@contextmanager
def _part(settings: Settings, name: str) -> Iterator[Process]:
    """Run ``serve`` or ``job`` for the duration of the block; it must then stop cleanly."""
    data = settings.data
    run_file = data.run_dir / f"{name}.json"
    run_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "namesrv_stream", name, "--conf", str(data.dir / "test.toml")]
    with Process(name, command, data.dir / f"{name}-test.log", cwd=REPOSITORY) as process:
        wait_until(lambda: read_run_file(run_file) or not process.is_alive, _DEADLINE_S, f"{name} is ready")
        assert process.is_alive, process.log_text()
        yield process
        assert process.terminate(30) == 0, process.log_text()


def _run(settings: Settings, *arguments: str) -> Finished:
    return run_command(*arguments, "--conf", str(settings.data.dir / "test.toml"))


def _replay(settings: Settings, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, err = _run(settings, "replay", "--json", *arguments)
    assert code in (0, 1), err
    return code, json.loads(out)


def _send_events(producer: EventProducer, first: int) -> None:
    producer.send(ServerStarted(_S1))
    for number in range(first, first + 20):
        topics = {f"t{number}": RW, "TopicTest": RW}
        changes: dict[str, Any] = {"topics": topics, "registration_hash": f"hash {number}"}
        producer.send(BrokerRegistered(_S1, a_registration(broker_name=f"broker-{number % 7}", **changes)))
    producer.send(TopicDeleted(_S1, f"t{first}", None), KvPut(_S1, "ns", "first", str(first)))


def _answers(addr: str, topic: str) -> bool:
    with RemotingClient(addr) as client:
        return client.ask(_GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0


@pytest.mark.timeout(900)  # it starts a job twice and folds seven times, which takes minutes on a busy machine
def test_replay_finds_damage_and_rebuild_repairs_it_while_a_server_answers(settings: Settings) -> None:
    addr = f"127.0.0.1:{settings.remoting.listen_port}"
    with event_producer(settings) as producer, _part(settings, "serve"):
        with _part(settings, "job"):
            _send_events(producer, 0)
            wait_folded(settings, _DEADLINE_S)
            code, beside = _replay(settings)
            assert (code, beside["equal"]) == (0, True), beside
            code, _, error = _run(settings, "rebuild")
            assert code == 2
            assert "another job runs here" in error
        code, before = _replay(settings)
        assert code == 0
        assert all(part["is_state_compared"] for part in before["partitions"])
        until = [f"--to-offset={part['partition']}:{part['end']}" for part in before["partitions"]]

        _damage_and_repair(settings)
        code, mended = _replay(settings, *until)
        assert (code, mended["digest"]) == (0, before["digest"])
        assert [part["rows"] for part in mended["partitions"]] == [part["rows"] for part in before["partitions"]]

        shutil.rmtree(settings.data.tables_dir)
        wait_until(lambda: _answers(addr, "t5"), 5, "the server answers without tables")
        code, _, error = _run(settings, "rebuild")
        assert code == 0, error
        assert _replay(settings, *until)[1]["digest"] == before["digest"]

        rows = written_changes(settings)
        with _part(settings, "job") as job:
            assert "resuming at partition 0 offset " in job.log_text()
            _send_events(producer, 100)
            wait_folded(settings, _DEADLINE_S)
            wait_until(lambda: _answers(addr, "t105"), 30, "the server follows the new tables")
            assert _answers(addr, "t5")
            code, after = _replay(settings)
            assert (code, after["equal"]) == (0, True), after
        assert set(rows) < set(written_changes(settings))


def _damage_and_repair(settings: Settings) -> None:
    """Change a stored row: replay finds it, and rebuild repairs it with consent."""
    is_hit = (pc.field("kind") == "queue_data") & (pc.field("topic") == "t5")
    assert rewrite_rows(settings.data.tables_dir, ROUTE_CHANGES, "perm", 4, is_hit)
    code, damaged = _replay(settings)
    first = damaged["first_difference"]
    assert (code, first["kind"], first["columns"], first["key"]["topic"]) == (1, "queue_data", ["perm"], "t5")
    assert (first["stored"]["perm"], first["folded"]["perm"]) == (4, 6)
    code, _, error = _run(settings, "rebuild")
    assert code == 1
    assert "--accept-differences" in error
    code, out, error = _run(settings, "rebuild", "--accept-differences")
    assert code == 0, error
    assert re.search(r"rebuilt and verified: \d+ rows, digest [0-9a-f]{32}", out)
