"""The publisher without Kafka reports every failed session once, and can begin again."""

import asyncio
from typing import Any

import pytest

from namesrv_stream.server.gateway.publisher import KafkaPublisher
from namesrv_stream.server.gateway.records import Acked, OutRecord
from tests.support.processes import free_port

_DEADLINE_S = 20.0
_POLL_S = 0.01


class Heard:
    """What a publisher reported to its owner."""

    def __init__(self) -> None:
        self.partition = 0
        self.opened_count = 0
        self.failures: list[tuple[str, list[OutRecord]]] = []

    def opened(self) -> None:
        self.opened_count += 1

    def acked(self, records: list[Acked]) -> None:
        raise AssertionError("nothing can be acknowledged without Kafka")

    def failed(self, reason: str, lost: list[OutRecord]) -> None:
        self.failures.append((reason, lost))


def a_publisher(heard: Heard, config: dict[str, Any]) -> KafkaPublisher:
    return KafkaPublisher(asyncio.get_running_loop(), config, "topic", lambda partition: partition, heard)


async def until_it_can_begin(publisher: KafkaPublisher) -> None:
    for _ in range(round(_DEADLINE_S / _POLL_S)):
        if publisher.can_begin:
            return
        await asyncio.sleep(_POLL_S)
    pytest.fail(f"no session can begin after {_DEADLINE_S} s")


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"bootstrap_timeout_ms": 200}, id="Kafka unreachable"),
        pytest.param({"no_such_setting": 1}, id="setting unknown"),
    ],
)
async def test_a_session_that_cannot_open_fails_once_and_another_can_begin(config: dict[str, Any]) -> None:
    heard = Heard()
    publisher = a_publisher(heard, {"bootstrap_servers": f"127.0.0.1:{free_port()}", **config})
    for count in (1, 2):
        publisher.begin()
        assert not publisher.can_begin
        await until_it_can_begin(publisher)
        assert (heard.opened_count, len(heard.failures)) == (0, count)


async def test_close_without_a_session_does_not_report_acknowledged_records() -> None:
    assert not await a_publisher(Heard(), {}).close(0.01)
