"""Repartitioning with a real Kafka and job, two servers, and brokers and clients that continue meanwhile.

``tests/spark/test_history_with_faults.py`` repartitions while the history is written.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from namesrv_stream.errors import KafkaUnreachable
from namesrv_stream.kafka.event_topics import TopicGrowth
from namesrv_stream.kafka.log_reader import read_extent
from namesrv_stream.processes import read_run_file
from namesrv_stream.remoting.command import RequestCode, ResponseCode
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.events import BrokerRegistered, KvPut, ServerStarted, Tick, partition_of
from namesrv_stream.route.fold.state import decode_state
from namesrv_stream.route.model import Registration
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.streaming.route_table.fold_query import find_start_point
from namesrv_stream.tables.history_tables import ensure_history_tables
from namesrv_stream.tables.repair import prepare_tables
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter
from namesrv_stream.tables.snapshot import load_snapshot, read_newest_state
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tables.stored_changes import KeptStates
from namesrv_stream.tools.replay import topic_repartition as repartition_module
from namesrv_stream.tools.replay.replay_report import Repartition
from tests.integration.test_server import Serve
from tests.support.builders import S1, a_registration, over
from tests.support.command_line import Finished, run_command
from tests.support.kafka import REPOSITORY, settings_for
from tests.support.processes import Process, wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.scripted_brokers import ScriptedBrokers
from tests.support.spark import event_producer, own_settings, wait_folded, written_changes

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1_800)]

_DEADLINE_S = 240.0
_BROKERS = 12
_CLUSTER = "grown"
_TOPIC = "TopicTest"


class _Peers:
    """Brokers that register at one server and a client that requests routes, until ``stop``.

    Attributes:
        answers: Number of answers with a route.
        failures: All other results.
    """

    def __init__(self, serve: Serve) -> None:
        self.answers = 0
        self.failures: list[object] = []
        self._serve = serve
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._ask)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _beat(self) -> None:
        # The connections stay open until the server ends, so that it sees no broker leave.
        brokers = ScriptedBrokers(_CLUSTER, _BROKERS, [self._serve.addr])
        try:
            while not self._stop.wait(1.0):
                brokers.register()
        except (OSError, AssertionError) as error:
            self._note(error)

    def _ask(self) -> None:
        try:
            with self._serve.connect() as client:
                while not self._stop.wait(0.02):
                    self._look(client)
        except OSError as error:
            self._note(error)

    def _look(self, client: RemotingClient) -> None:
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": _TOPIC})
        if answer.code == ResponseCode.SUCCESS:
            self.answers += 1
        elif self.answers:  # before that, no broker has registered yet
            self._note(answer)

    def _note(self, failure: object) -> None:
        if not self._stop.is_set():
            self.failures.append(failure)


def _settings(kafka: Settings, data_dir: Path, tables: Path, topic: str) -> Settings:
    return settings_for(
        data_dir,
        kafka__bootstrap_servers=f"127.0.0.1:{kafka.embedded_kafka.listen_port}",
        kafka__broker_events_topic=topic,
        kafka__dead_letter_topic=f"{topic}.dead-letters",
        kafka__partitions=2,
        kafka__delivery_timeout_ms=3000,
        data__tables=str(tables),
        streaming__driver_memory="512m",
        streaming__compaction_interval_ms=2000,
    )


def _grown(settings: Settings) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": 5})})


def _conf(settings: Settings) -> str:
    settings.data.dir.mkdir(parents=True, exist_ok=True)
    conf = settings.data.dir / "test.toml"
    conf.write_text(to_toml(settings))
    return str(conf)


@contextmanager
def _job(settings: Settings) -> Iterator[Process]:
    run_file = settings.data.run_dir / "job.json"
    run_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "namesrv_stream", "job", "--conf", _conf(settings)]
    with Process("job", command, settings.data.dir / "job-test.log", cwd=REPOSITORY) as process:
        wait_until(lambda: read_run_file(run_file) or not process.is_alive, _DEADLINE_S, "the job is ready")
        assert process.is_alive, process.log_text()
        yield process
        assert process.terminate(30) == 0, process.log_text()


def _run(settings: Settings, *arguments: str) -> Finished:
    return run_command(*arguments, "--conf", _conf(settings))


def _brokers_as_of(settings: Settings, at_ms: int) -> int:
    found = _run(settings, "route", _TOPIC, "--as-of", str(at_ms), "--json")
    assert found.code == 0, found.err
    return len(json.loads(found.out)["brokerDatas"])


def _route(serve: Serve) -> dict[str, Any]:
    with serve.connect() as client:
        route: dict[str, Any] = json.loads(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": _TOPIC}).body)
    return {name: sorted(map(json.dumps, value)) for name, value in route.items() if isinstance(value, list)}


@pytest.fixture
def servers(kafka_settings: Settings, tmp_path: Path) -> Iterator[tuple[Serve, Serve]]:
    topic = f"test-{uuid4()}"
    found = [_settings(kafka_settings, tmp_path / name, tmp_path / "tables", topic) for name in ("a", "b")]
    for settings in found:
        settings.data.dir.mkdir()
    serves = tuple(Serve(settings, settings.data.dir) for settings in found)
    for serve in serves:
        serve.start()
    yield serves[0], serves[1]
    for serve in serves:
        serve.process.close()


def _restarted(serve: Serve) -> Serve:
    assert serve.process.terminate(30) == 0, serve.process.log_text()
    (serve.settings.data.run_dir / "serve.json").unlink(missing_ok=True)
    again = Serve(_grown(serve.settings), serve.settings.data.dir)
    again.start()
    return again


def test_brokers_and_clients_continue_after_a_repartition(servers: tuple[Serve, Serve]) -> None:
    settings, peers = servers[0].settings, [_Peers(serve) for serve in servers]
    failures: list[object] = []
    try:
        with _job(settings):
            wait_until(lambda: all(each.answers for each in peers), _DEADLINE_S, "routes are answered")
            wait_folded(settings, _DEADLINE_S)
        # The command folds the records that the job has not folded.
        with ScriptedBrokers("late", 1, [serve.addr for serve in servers]) as late:
            instants = [time.time_ns() // 1_000_000]
            late.register()
            before = [_route(serve) for serve in servers]
            assert len(before[0]["brokerDatas"]) == _BROKERS + 1
            done = _run(settings, "repartition", "--partitions", "5", "--json")
            assert done.code == 0, done.err
            outcome = json.loads(done.out)
            assert (outcome["before"], outcome["partitions"], outcome["broker_names"]) == (2, 5, _BROKERS + 1)
            assert [_route(serve) for serve in servers] == before
            instants.append(time.time_ns() // 1_000_000)
            new = [_switch_over(serve, each, failures) for serve, each in zip(servers, peers, strict=True)]
            peers = [each for _, each in new]
            again = [serve for serve, _ in new]
            grown = _grown(settings)
            with ScriptedBrokers("late", 1, [serve.addr for serve in again]) as back, _job(grown):
                back.register()
                wait_until(lambda: all(serve.talks() for serve in again), _DEADLINE_S, "the servers reach Kafka")
                wait_folded(grown, _DEADLINE_S)
                wait_until(lambda: [_route(serve) for serve in again] == before, _DEADLINE_S, "all brokers are served")
            assert failures + [failure for each in peers for failure in each.failures] == []
            _check_tables(grown)
            ensure_history_tables(grown, read_extent(grown).topic_id)  # empty, so route_changes contains the whole past
            instants.append(time.time_ns() // 1_000_000)
            assert [_brokers_as_of(grown, at_ms) for at_ms in instants] == [_BROKERS, _BROKERS + 1, _BROKERS + 1]
            for number in range(_BROKERS):
                (session,) = json.loads(_run(grown, "history", f"{_CLUSTER}-{number}", "--json").out)["sessions"]
                assert session["up_ms"] < instants[0]
                assert session["down_ms"] is None
            replayed = _run(grown, "replay", "--json")
            assert replayed.code == 0, replayed.out
            assert json.loads(replayed.out)["equal"]
            refused = _run(settings, "repartition", "--partitions", "3")
            assert refused.code == 2, refused
    finally:
        for each in peers:
            each.stop()
        for serve in locals().get("again", ()):
            serve.process.close()


def _switch_over(serve: Serve, peers: _Peers, failures: list[object]) -> tuple[Serve, _Peers]:
    """Restart a server with more partitions; meanwhile its peers use the other one."""
    assert not serve.talks()
    peers.stop()
    failures += peers.failures
    assert peers.answers > 100
    again = _restarted(serve)
    return again, _Peers(again)


def _check_tables(settings: Settings) -> None:
    """Assert that no broker was removed, and that every broker is in the partition of its name."""
    rows = written_changes(settings)
    gone = [row for row in rows if row.gone and row.kind == ChangeKind.BROKER_LIVE]
    assert gone == []
    states = read_newest_state(tables_of(settings)).fold_states
    assert sorted(states) == [0, 1, 2, 3, 4]
    for partition, row in states.items():
        names = {key.broker_name for key in decode_state(row.content).leases}
        assert all(partition_of(name, 5) == partition for name in names)
    assert len(load_snapshot(tables_of(settings)).table.groups) == _BROKERS + 1


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (TopicGrowth, "grow"),
        (ChangesWriter, "grow"),
        (StateWriter, "replace"),
        (repartition_module, "load_snapshot"),
        (TopicGrowth, "open"),
    ],
    ids=[
        "before the topic grows",
        "before route_changes",
        "before route_state",
        "before the fold",
        "before the topic is opened",
    ],
)
def test_killed_repartition_is_finished_by_the_next_run(
    kafka_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str
) -> None:
    settings, fleet = _with_events(kafka_settings, tmp_path)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, killed)
        with pytest.raises(KeyboardInterrupt):
            _repartition(settings)
    outcome = _repartition(settings)
    assert (outcome.partitions, outcome.broker_names) == (5, _BROKERS)
    grown = _grown(settings)
    tables = tables_of(settings)
    assert load_snapshot(tables).table.kv == {"ns": {"key": "value"}}
    extent = read_extent(grown)
    writer = ChangesWriter(tables, 0)
    start = find_start_point(KeptStates(tables), writer.committed, writer.table.removed_below, extent)
    assert start.offsets == {**{p: extent.end[p] for p in (0, 1)}, 2: 0, 3: 0, 4: 0}
    names = {name: partition for partition, name, _ in start.initial_state if name is not None}
    assert names == {each.broker_name: partition_of(each.broker_name, 5) for each in fleet}
    with event_producer(grown) as producer:  # the topic is open again
        producer.send(Tick(S1))
    assert _repartition(settings).begins == {}


@pytest.mark.parametrize("has_grown", [False, True])
def test_topic_stays_closed_if_kafka_was_asked_for_partitions_and_failed(
    kafka_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_grown: bool
) -> None:
    settings, _ = _with_events(kafka_settings, tmp_path)
    grow = TopicGrowth.grow

    def failed(growth: TopicGrowth, partitions: int) -> None:
        if has_grown:
            grow(growth, partitions)
        raise KafkaTimeoutError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(TopicGrowth, "grow", failed)
        with pytest.raises(KafkaTimeoutError):
            _repartition(settings)
    current = _grown(settings) if has_grown else settings
    with event_producer(current) as producer, pytest.raises(MessageSizeTooLargeError):
        producer.send(Tick(S1))
    assert _repartition(settings).broker_names == _BROKERS
    with event_producer(_grown(settings)) as producer:
        producer.send(Tick(S1))


def test_topic_is_not_closed_if_kafka_would_refuse_the_partitions(kafka_settings: Settings, tmp_path: Path) -> None:
    settings, _ = _with_events(kafka_settings, tmp_path)
    steps: list[str] = []
    with pytest.raises(KafkaUnreachable):
        repartition_module.repartition(settings, 1_000_000, steps.append, lambda partition, done, total: None)
    assert steps == []
    with event_producer(settings) as producer:
        producer.send(Tick(S1))


def _with_events(kafka_settings: Settings, tmp_path: Path) -> tuple[Settings, list[Registration]]:
    """Write the registrations of a fleet to a topic with two partitions, and create the tables."""
    settings = own_settings(kafka_settings, tmp_path, partitions=2)
    kafka = settings.kafka.model_copy(update={"delivery_timeout_ms": 1_000})
    settings = settings.model_copy(update={"kafka": kafka})
    fleet = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(_BROKERS)]
    with event_producer(settings) as producer:
        producer.send(ServerStarted(S1), *(BrokerRegistered(over(S1, 1), each) for each in fleet), Tick(S1))
        producer.send(KvPut(S1, "ns", "key", "value"))
    prepare_tables(settings, read_extent(settings).topic_id)
    return settings, fleet


def _repartition(settings: Settings) -> Repartition:
    return repartition_module.repartition(settings, 5, lambda text: None, lambda partition, done, total: None)
