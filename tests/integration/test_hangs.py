"""A server that hangs is killed and started again; its peers do not wait for longer."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from namesrv_stream.processes import child_processes, is_running, read_run_file
from namesrv_stream.remoting.command import RequestCode, ResponseCode
from namesrv_stream.run_books import RunBook
from namesrv_stream.settings import Settings
from tests.integration.test_log_tail import settings_beside
from tests.integration.test_server import Serve
from tests.support.hanging_server import VARIABLE, request_hang
from tests.support.kafka import REPOSITORY, KafkaProcess, settings_for
from tests.support.name_server import a_body, a_registration_request, a_topic
from tests.support.processes import ServeProcess, suspend, wait_until
from tests.support.remoting_client import RemotingClient, encode_request

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

_TIMEOUT_MS = 2_100  # the lowest one is four ticks
_DEADLINE_S = 60


class HangingServe(Serve):
    """A server that can hang."""

    def __init__(self, settings: Settings, work_dir: Path) -> None:
        super().__init__(settings, work_dir)
        self._trigger = work_dir / "hang"
        command = [sys.executable, "-m", "tests.support.hanging_server", "serve", "-c", str(work_dir / "serve.toml")]
        environ = {VARIABLE: str(self._trigger)}
        self.process = ServeProcess("serve", command, work_dir / "serve.log", cwd=REPOSITORY, env=environ)

    @property
    def pid(self) -> int:
        """Process id of the server that is ready; 0 while there is none."""
        return int((read_run_file(self.settings.data.run_dir / "serve.json") or {}).get("pid", 0))

    def hang(self, how: str) -> None:
        if how == "stop":
            suspend(self.process.server_pid)
        else:
            request_hang(self._trigger, how)
            wait_until(lambda: not self._trigger.exists(), _DEADLINE_S, "the server hangs")


@pytest.mark.parametrize("how", ["stop", "loop", "lock"])
def test_server_that_hangs_cuts_its_connections_and_comes_back_with_its_routes(
    kafka_settings: Settings, tmp_path: Path, how: str
) -> None:
    topic = f"hang-{how}"
    settings = settings_beside(kafka_settings, tmp_path / "data", topic, server__hang_timeout_ms=_TIMEOUT_MS)
    serve = HangingServe(settings, tmp_path)
    serve.start()
    try:
        first = serve.process.server_pid
        with serve.connect() as broker:
            _register(broker)
            workers = list(child_processes(first))  # a large registration has started the decoder
            assert workers
            put = broker.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
            assert put.code == ResponseCode.SUCCESS  # it is in the log, and so is what preceded it
            serve.hang(how)
            broker.send(encode_request(RequestCode.GET_BROKER_CLUSTER_INFO, 99))
            with pytest.raises(ConnectionError):
                broker.receive()
        wait_until(lambda: serve.pid not in (0, first), _DEADLINE_S, "the server is back")
        assert "the server hung and was killed" in serve.process.log_text()
        wait_until(lambda: not any(map(is_running, workers)), _DEADLINE_S, "the workers of the first server have ended")
        with serve.connect() as client:
            assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T0"}).code == ResponseCode.SUCCESS
        wait_until(serve.talks, _DEADLINE_S, "the server reaches Kafka")
        wait_until(lambda: _health(serve).get("run_book") == RunBook.SERVER_HANGS, _DEADLINE_S, "/healthz reports it")
        assert _health(serve)["state"] == "degraded"
        assert "rocketmq_namesrv_hang_restarts_total 1.0" in serve.get("/metrics")[2]
        assert serve.process.terminate() == 0
    finally:
        serve.process.close()


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaProcess]:
    process = KafkaProcess(settings_for(tmp_path / "kafka"))
    try:
        process.wait_ready()
        yield process
    finally:
        process.kill()


def test_server_does_not_hang_because_kafka_does(kafka: KafkaProcess, tmp_path: Path) -> None:
    settings = settings_beside(kafka.settings, tmp_path / "data", "kafka-hangs", server__hang_timeout_ms=_TIMEOUT_MS)
    serve = Serve(settings, tmp_path)
    serve.start()
    try:
        first = serve.process.server_pid
        with serve.connect() as broker:
            kafka.freeze()
            try:
                _register(broker)
                wait_until(lambda: not serve.talks(), _DEADLINE_S, "the server notices that Kafka hangs")
                _register(broker)
            finally:
                kafka.thaw()
        assert serve.process.server_pid == first
        assert "hung" not in serve.process.log_text()
    finally:
        serve.process.close()


def test_without_a_time_limit_a_server_that_was_stopped_goes_on(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = settings_beside(kafka_settings, tmp_path / "data", "hang-unwatched", server__hang_timeout_ms=0)
    serve = Serve(settings, tmp_path)
    serve.start()
    try:
        first = serve.process.server_pid
        suspend(first)
        with serve.connect() as peer:  # the kernel accepts the connection
            peer.send(encode_request(RequestCode.GET_BROKER_CLUSTER_INFO, 99))
            with pytest.raises(TimeoutError):
                peer.receive()
            os.kill(first, signal.SIGCONT)
            assert peer.receive().code == ResponseCode.SUCCESS
        assert serve.process.server_pid == first
    finally:
        serve.process.close()


def _register(broker: RemotingClient) -> None:
    """Register a broker with so many topics that another process decodes them."""
    request = a_registration_request(body=a_body({f"T{i}": a_topic() for i in range(10_000)}))
    assert request.body
    assert broker.ask(request.code, request.ext_fields, request.body).code == ResponseCode.SUCCESS


def _health(serve: Serve) -> dict[str, str]:
    return next(part for part in json.loads(serve.get("/healthz")[2])["parts"] if part["name"] == "server")
