"""The recipes of docs/backup.md on the whole product, after a loss of everything, of the tables, and of Kafka."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from tests.support.command_line import run_command
from tests.support.name_server import a_body, a_broker_header, a_registration_request
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1_200)]

_WAIT_S: Final = 300.0
_TOPIC: Final = "TopicTest"
_LIVE, _GONE = "10.0.0.1:10911", "10.0.0.3:10911"
#: The folders that docs/backup.md says to copy.
_PARTS: Final = ("kafka", "tables", "server")
_FLAGS: Final[dict[str, str | int]] = {
    "streaming__driver_memory": "512m",
    # The broker's connection stays open while the history's first run is awaited.
    "remoting__idle_timeout_ms": 3_600_000,
}


def _ask(client: RemotingClient, request: RemotingCommand) -> None:
    answer = client.ask(request.code, request.ext_fields, request.body or b"")
    assert answer.code == ResponseCode.SUCCESS, answer


def _command(stack: Stack, *words: str) -> Any:
    found = run_command(*words, "--conf", str(stack.settings.data.run_dir / "effective.toml"), "--json")
    assert found.code == 0, found
    return json.loads(found.out)


def _put(stack: Stack, value: str) -> None:
    fields = {"namespace": "BACKUP", "key": "k", "value": value}
    with RemotingClient(stack.remoting) as client:
        _ask(client, RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields))


def _ended_sessions(stack: Stack) -> list[dict[str, Any]]:
    """Wait for the ended sessions of the broker; they never change."""

    def ended() -> list[dict[str, Any]]:
        sessions = _command(stack, "history", "broker-a")["sessions"]
        return [session for session in sessions if session["broker_addr"] == _GONE and session["cause"]]

    return wait_until(ended, _WAIT_S, "the ended session is in the history", ignoring=(AssertionError,), every_s=1)


def _wait_stored(stack: Stack) -> None:
    """Wait until the history tables have the ended session."""
    (session,) = _ended_sessions(stack)

    def is_stored() -> bool:
        return bool(_command(stack, "history", "broker-a")["history"]["stored_to_ms"] > session["down_ms"])

    wait_until(is_stored, _WAIT_S, "the ended session is in the history tables", ignoring=(TypeError,), every_s=1)


def _copy(source: Path, target: Path, parts: tuple[str, ...]) -> None:
    for part in parts:
        shutil.copytree(source / part, target / part)


def _facts(stack: Stack) -> dict[str, Any]:
    """Return the state that a restore must reproduce."""
    route, kv = stack.get(f"/routes/{_TOPIC}"), stack.get("/kv/BACKUP")
    return {"route": route, "kv": kv, "sessions": _ended_sessions(stack)}


def _start(data: Path, **flags: str | int) -> Stack:
    stack = Stack(data, **_FLAGS, **flags)
    stack.start()
    stack.wait_job()
    return stack


def test_documented_recipes_restore_everything_they_promise(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    stack = _start(data, history__enabled="true", history__interval_ms=1_000)
    try:
        with RemotingClient(stack.remoting) as broker:
            for addr, broker_id in ((_LIVE, 0), (_GONE, 1)):
                body = a_body(None if broker_id == 0 else {})
                _ask(broker, a_registration_request(addr, broker_id, body=body, heartbeatTimeoutMillis="600000"))
            stack.wait_change(kind="broker_live", broker_addr=_GONE)
            _ask(broker, RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header(_GONE, 1)))
            _put(stack, "before the backup")
            stack.wait_change(kind="kv", namespace="BACKUP", key="k")
            _wait_stored(stack)
            before = _facts(stack)
            assert stack.stop() == 0

        # Everything is lost, and restored from the copy.
        _copy(data, backup, _PARTS)
        shutil.rmtree(data)
        _copy(backup, data, _PARTS)
        stack = _start(data)
        assert _facts(stack) == before
        assert _command(stack, "replay")["equal"] is True

        # The tables are lost, but Kafka is not: nothing from after the backup is missing, although the job had folded
        # more than the restored tables contain.
        _put(stack, "after the backup")
        stack.wait_change(kind="kv", namespace="BACKUP", value="after the backup")
        assert stack.stop() == 0
        shutil.rmtree(data / "tables")
        _copy(backup, data, ("tables",))
        stack = _start(data)
        stack.wait_change(_WAIT_S, kind="kv", namespace="BACKUP", value="after the backup")
        after = {**before, "kv": {"k": "after the backup"}}
        wait_until(lambda: _facts(stack) == after, _WAIT_S, "the state before the loss")
        assert _command(stack, "replay")["equal"] is True
        assert stack.stop() == 0

        # Kafka is lost: the doctor reports it before the start. The job refuses to start. The
        # server still serves the routes.
        shutil.rmtree(data / "kafka")
        examined = run_command("doctor", "--data-dir", str(data))
        assert (examined.code, "contains no topic" in examined.out) == (1, True), examined
        stack = Stack(data, **_FLAGS)
        stack.start()
        wait_until(lambda: "the others continue" in stack.output, _WAIT_S, "up says that the job cannot run")
        assert stack.output.count("the log is another one") == 1
        assert stack.get(f"/routes/{_TOPIC}") == before["route"]
        assert stack.stop() == 0

        # The remedy: new tables with the KV entries of the old ones. The old history stays readable.
        (data / "tables").rename(data / "tables.before")
        stack = Stack(data, **_FLAGS)
        stack.start()
        kv_config = tmp_path / "kvConfig.json"
        exported = run_command("kv", "export", "--tables", str(data / "tables.before"))
        assert exported.code == 0, exported
        kv_config.write_text(exported.out, encoding="utf-8")
        imported = run_command("kv", "import", str(kv_config), "-n", stack.remoting)
        assert imported.code == 0, imported
        assert stack.get("/kv/BACKUP") == after["kv"]
        old = _command(stack, "history", "broker-a", "--set", f"data.tables={data / 'tables.before'}")["sessions"]
        assert [session for session in old if session in after["sessions"]] == after["sessions"]
        assert stack.stop() == 0
    finally:
        stack.close()
