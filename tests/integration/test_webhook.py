"""The webhook under `up` with a real receiver: after restarts of both sides no report is missing or out of order."""

from pathlib import Path
from typing import Any, Final

import pytest

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from tests.support.name_server import a_broker_header, a_registration_request
from tests.support.processes import free_port, wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.stack import Stack
from tests.support.webhook_receiver import Receiver

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

_WAIT_S: Final = 120.0


def _come_and_go(stack: Stack, addr: str) -> None:
    """Register and unregister a broker."""
    unregistration = RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header(addr, 0))
    with RemotingClient(stack.remoting) as broker:
        for request in (a_registration_request(addr, 0), unregistration):
            answer = broker.ask(request.code, request.ext_fields, request.body or b"")
            assert answer.code == ResponseCode.SUCCESS, answer
    stack.wait_change(kind="broker_live", broker_addr=addr, gone=True)


def _expected(*addrs: str) -> list[tuple[str, str]]:
    return [pair for addr in addrs for pair in (("broker_route", addr), ("broker_down", addr))]


def _wait_taken(receiver: Receiver, *addrs: str) -> None:
    """Wait until all events of these brokers have arrived in order; events may be repeated but not reordered."""

    def seen() -> list[tuple[str, str]]:
        events: dict[str, dict[str, Any]] = {}
        for event in receiver.accepted_events:
            events.setdefault(event["id"], event)
        return [(e["event"], e.get("broker_addr") or e["broker_addrs"]["0"]) for e in events.values()]

    wait_until(lambda: len(seen()) >= 2 * len(addrs), _WAIT_S, "reports of all brokers")
    assert seen() == _expected(*addrs)


def test_every_removed_broker_is_reported_in_order_across_restarts_of_both_sides(tmp_path: Path) -> None:
    port = free_port()
    flags = {"webhook__url": f"http://127.0.0.1:{port}/hook", "webhook__events": "broker_down,broker_route"}
    with Stack(tmp_path / "data", **flags) as stack:
        stack.wait_job()
        wait_until(lambda: (stack.settings.data.webhook_dir / "position.json").exists(), _WAIT_S, "webhook follows")
        with Receiver(port) as receiver:
            _come_and_go(stack, "10.0.0.1:10911")
            _wait_taken(receiver, "10.0.0.1:10911")
        # The receiver is away, and the webhook is killed meanwhile.
        _come_and_go(stack, "10.0.0.2:10911")
        stack.kill("webhook")
        stack.kill("serve")
        with Receiver(port) as receiver:
            _come_and_go(stack, "10.0.0.3:10911")
            _wait_taken(receiver, "10.0.0.2:10911", "10.0.0.3:10911")
            assert stack.stop() == 0
            stack.start()
            stack.wait_job()
            _come_and_go(stack, "10.0.0.4:10911")
            _wait_taken(receiver, "10.0.0.2:10911", "10.0.0.3:10911", "10.0.0.4:10911")
