"""The whole product with its tables in an S3-compatible store, also while the store is unavailable."""

import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from obstore.store import S3Store

from namesrv_stream.remoting.command import RequestCode, ResponseCode
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.settings import Settings, to_toml
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, decode_changes, in_log_order
from namesrv_stream.tables.delta.stored_table import StoredTable
from namesrv_stream.tables.delta.table_version import open_version
from namesrv_stream.tables.layout import BROKER_EVENTS, HISTORY_SCHEMAS, ROUTE_ARCHIVE, ROUTE_CHANGES
from namesrv_stream.tables.storage import tables_of
from tests.support.history_views import rows_of
from tests.support.kafka import REPOSITORY
from tests.support.object_store import ObjectStore
from tests.support.offline_fold import fold_offline
from tests.support.processes import Process, suspend, wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.scripted_brokers import ScriptedBrokers
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

_SETTLE_S = 180.0


@pytest.fixture(scope="module")
def stack(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product, set up by configuration and environment only, with the default settings of the history."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in object_store.environ.items():
            environment.setenv(name, value)
        flags = {"data__tables": "s3://tables/a/fleet", "history__enabled": "true"}
        with Stack(tmp_path_factory.mktemp("s3") / "data", **flags) as running:
            running.wait_job()
            yield running


@pytest.fixture(scope="module")
def settings(stack: Stack, object_store: ObjectStore) -> Settings:
    """Settings of a reader next to the product."""
    servers = f"127.0.0.1:{stack.settings.embedded_kafka.listen_port}"
    kafka = stack.settings.kafka.model_copy(update={"bootstrap_servers": servers})
    data = stack.settings.data.model_copy(update={"extra": dict(object_store.options)})
    return stack.settings.model_copy(update={"data": data, "kafka": kafka})


def _rows(settings: Settings) -> tuple[list[RouteChange], dict[int, int]]:
    """Return all rows of ``route_changes`` in log order, and the offsets that they reach."""
    table = open_version(tables_of(settings) / ROUTE_CHANGES, CHANGES_SCHEMA)
    assert table is not None
    return decode_changes(in_log_order(table.read())), table.next_offsets


def _has_route(addr: str, topic: str = "TopicTest") -> bool:
    with RemotingClient(addr) as client:
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return answer.code == ResponseCode.SUCCESS


def _brokers(stack_or_server: str) -> set[str]:
    with RemotingClient(stack_or_server) as client:
        answer = client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return set(re.findall(r'"brokerName":"([^"]+)"', answer.body.decode()))


def test_server_answers_with_brokers_of_another_server_through_the_store(stack: Stack, tmp_path: Path) -> None:
    with ScriptedBrokers("heard", 2, [stack.remoting]) as brokers:
        brokers.register()
        with SecondServer(tmp_path / "second", stack) as second:
            wait_until(
                lambda: {"heard-0", "heard-1"} <= _brokers(second.remoting),
                _SETTLE_S,
                "the other server has the brokers",
            )
            assert _has_route(second.remoting)
            brokers.unregister()
            wait_until(
                lambda: not {"heard-0", "heard-1"} & _brokers(second.remoting), _SETTLE_S, "the brokers are removed"
            )


def test_history_is_in_the_store_and_survives_a_kill(stack: Stack, settings: Settings, tmp_path: Path) -> None:
    for number in range(2):
        with ScriptedBrokers(f"past{number}", 2, [stack.remoting]) as brokers:
            brokers.register()
            wait_until(lambda n=number: f"past{n}-0" in _archived(settings), _SETTLE_S, "the broker is in the archive")  # type: ignore[misc]
            registered_ms = time.time_ns() // 1_000_000
            brokers.unregister()
        stack.kill("history-job")
    wait_until(lambda: {"past0-0", "past1-0"} <= _archived(settings), _SETTLE_S, "both brokers are in the archive")
    rows = rows_of(tables_of(settings), "route_archive")
    places = [(row["partition"], row["offset"], row["seq"]) for row in rows]
    assert len(places) == len(set(places))
    events = [(row["partition"], row["offset"]) for row in rows_of(tables_of(settings), BROKER_EVENTS)]
    assert len(events) == len(set(events))
    fleet = "s3://tables/a/fleet"
    assert "past0-0" in _command("history", settings, tmp_path / "data", fleet)
    assert "past0-0" in _command("report", settings, tmp_path / "data", fleet, "--json")
    assert "as of" in _command("route", settings, tmp_path / "data", fleet, "TopicTest", "--as-of", str(registered_ms))
    assert "past0-0" in _get(stack, "/console/parts/timeline")
    assert "Compared with" in _get(stack, f"/console/parts/route?topic=TopicTest&as_of={registered_ms}")
    assert '"lastChange"' in _get(stack, f"/routes/TopicTest?as_of={registered_ms}")


def _get(stack: Stack, path: str) -> str:
    """Return the answer of the HTTP port, which must have status 200."""
    with urllib.request.urlopen(f"http://{stack.http}{path}", timeout=60) as answer:
        return str(answer.read().decode())


def test_killed_job_and_server_continue_from_the_store_without_loss(stack: Stack, settings: Settings) -> None:
    names = {"killed-0", "killed-1"}
    with ScriptedBrokers("killed", 2, [stack.remoting]) as brokers:
        brokers.register()
        stack.kill("job")
        brokers.register(version=2)
        stack.wait_job()
        wait_until(lambda: names <= _live(settings), _SETTLE_S, "the tables have both brokers")
        stack.kill("serve")
    assert names <= _brokers(stack.remoting)
    with ScriptedBrokers("killed", 2, [stack.remoting]) as again:
        again.register(version=3)
        again.unregister()
        wait_until(lambda: not names & _live(settings), _SETTLE_S, "the tables have the unregistrations")
    rows, offsets = _rows(settings)
    assert rows == sorted(fold_offline(settings, until=offsets))


def _live(settings: Settings) -> set[str | None]:
    """Return the registered broker names in ``route_changes``."""
    newest = {row.broker_name: row.gone for row in _rows(settings)[0] if row.kind == ChangeKind.BROKER_LIVE}
    return {name for name, gone in newest.items() if not gone}


def _archived(settings: Settings) -> set[str]:
    """Return the broker names in ``route_archive``; none before it exists."""
    if not (tables_of(settings) / "route_archive").has("_delta_log"):
        return set()
    table = StoredTable.open(tables_of(settings), ROUTE_ARCHIVE, HISTORY_SCHEMAS[ROUTE_ARCHIVE])
    assert table is not None
    return set(table.rows(columns=["broker_name"])["broker_name"].drop_nulls().to_list())


def test_no_output_shows_a_secret(stack: Stack) -> None:
    for file in (*stack.data_dir.glob("logs/*"), stack.data_dir / "run" / "effective.toml"):
        assert "Tr0ub4dor" not in file.read_text(errors="replace"), file


def test_server_answers_without_the_store_and_loses_nothing(
    stack: Stack, settings: Settings, object_store: ObjectStore, tmp_path: Path
) -> None:
    stack.wait_job()
    job, server = stack.pid("job"), stack.pid("serve")
    with (
        ScriptedBrokers("before", 1, [stack.remoting]) as before,
        ScriptedBrokers("while", 1, [stack.remoting]) as meanwhile,
    ):
        before.register()
        with SecondServer(tmp_path / "second", stack) as second:
            wait_until(lambda: "before-0" in _brokers(second.remoting), _SETTLE_S, "the store has the broker")
            object_store.become_unavailable()
            try:
                late = SecondServer(tmp_path / "late", stack, "late")
                late.process.start()
                late.process.wait_for_log("waiting for the tables", _SETTLE_S)
                meanwhile.register()
                assert {"before-0", "while-0"} <= _brokers(stack.remoting)
                assert "before-0" in _brokers(second.remoting)
                wait_until(
                    lambda: not _is_healthy(second),
                    _SETTLE_S,
                    "the health page reports that the tables are not updated",
                )
                assert late.process.is_alive
            finally:
                object_store.become_available()
            try:
                for addr in (second.remoting, late.remoting):
                    _wait_for_broker(addr, "while-0")
            finally:
                late.process.close()
    assert (stack.pid("job"), stack.pid("serve")) == (job, server)
    rows, offsets = _rows(settings)
    assert rows == sorted(fold_offline(settings, until=offsets))


def _wait_for_broker(addr: str, name: str) -> None:
    wait_until(lambda: name in _brokers(addr), _SETTLE_S, f"{addr} has {name}", ignoring=(OSError,))


def _is_healthy(server: SecondServer) -> bool:
    return server.get_text("/healthz?format=text").startswith("green")


def test_copy_of_the_tables_is_rebuilt_in_the_store_while_the_product_runs(
    stack: Stack, settings: Settings, tmp_path: Path
) -> None:
    store, copy = _bucket(settings), "s3://tables/a/copy"
    for key in _keys(store, "a/fleet"):
        store.copy(key, key.replace("a/fleet/", "a/copy/", 1))
    copied = re.compile(r"a/copy/(route_changes|route_state)/.*\.parquet")
    before = {key for key in _keys(store, "a/copy") if copied.fullmatch(key)}
    assert before
    log = _command("rebuild", settings, tmp_path / "data", copy)
    assert "verifying the new tables" in log, log
    assert log.count(f"kept: {copy}/route_") == 2, log
    kept = {re.sub(r"(route_\w+)\.\w+/", r"\1/", key) for key in _keys(store, "a/copy") if "Z/" in key}
    assert before <= kept
    assert "equal, digest" in _command("replay", settings, tmp_path / "data", copy)


def _bucket(settings: Settings) -> S3Store:
    options = {name.lower(): str(value) for name, value in settings.data.extra.items()}
    return S3Store("tables", config=options, client_options={"allow_http": True})  # type: ignore[arg-type]


def _keys(store: S3Store, prefix: str) -> list[str]:
    return [item["path"] for page in store.list(prefix) for item in page]


def _command(name: str, settings: Settings, data_dir: Path, tables: str, *arguments: str) -> str:
    """Run a command that must succeed; returns its output."""
    sets = {"data.tables": tables, "kafka.bootstrap_servers": settings.kafka.bootstrap_servers}
    flags = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "namesrv_stream",
        name,
        *arguments,
        "--data-dir",
        data_dir,
        *flags,
    ]
    with Process(name, command, data_dir.parent / f"{name}.log", cwd=REPOSITORY) as process:
        code = process.wait(_SETTLE_S)
        assert code == 0, process.log_text()
        return process.log_text()


def test_frozen_job_ends_when_another_has_continued(
    stack: Stack, settings: Settings, object_store: ObjectStore, tmp_path: Path
) -> None:
    conf = tmp_path / "second.toml"
    second_data = settings.data.model_copy(update={"dir": tmp_path / "second-job"})
    conf.write_text(to_toml(settings.model_copy(update={"data": second_data})))
    command: list[str | Path] = [sys.executable, "-m", "namesrv_stream", "job", "--conf", conf]
    first = stack.pid("job")
    log = stack.data_dir / "logs" / "job.log"
    with ScriptedBrokers("torn", 3, [stack.remoting]) as brokers:
        brokers.register()
        suspend(first)  # its Python; a batch may be under way in its JVM
        try:
            with Process(
                "second-job", command, tmp_path / "second.log", env=object_store.environ, cwd=REPOSITORY
            ) as job:
                wait_until(
                    lambda: (second_data.run_dir / "job.json").exists() or not job.is_alive, _SETTLE_S, "the second job"
                )
                assert job.is_alive, job.log_text()
                _, reached = _rows(settings)
                brokers.register(version=2)
                wait_until(lambda: _rows(settings)[1] != reached, _SETTLE_S, "the second job continues")
                os.kill(first, signal.SIGCONT)
                wait_until(lambda: "has taken over these tables" in log.read_text(), _SETTLE_S, "the first job ends")
                assert job.is_alive
                rows, offsets = _rows(settings)
        finally:
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGCONT)
    assert rows == sorted(fold_offline(settings, until=offsets))
    wait_until(lambda: stack.pid("job") != first, _SETTLE_S, "the job is restarted", ignoring=(KeyError, TypeError))
    stack.wait_job()
