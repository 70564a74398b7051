"""The publisher with a frozen Kafka: records after a lost record never reach the log."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from kafka.net.compat import KafkaNetClient

from namesrv_stream.kafka import ensure_topics, producer_config
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.server.gateway.publisher import KafkaPublisher
from namesrv_stream.server.gateway.records import Acked, OutRecord
from namesrv_stream.server.start.identity import LogGuard
from namesrv_stream.settings import Settings
from tests.support.kafka import KafkaProcess, settings_for
from tests.support.offline_fold import read_records

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

_DEADLINE_S = 60.0
_POLL_S = 0.01
_DELIVERY_TIMEOUT_MS = 3_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    data = tmp_path_factory.mktemp("publisher") / "data"
    process = KafkaProcess(settings_for(data, kafka__delivery_timeout_ms=_DELIVERY_TIMEOUT_MS))
    try:
        process.wait_ready()
        yield process
    finally:
        process.stop()


@pytest.fixture
def settings(kafka: KafkaProcess) -> Iterator[Settings]:
    """Settings with a new topic; in the end, Kafka continues."""
    own = kafka.settings.kafka.model_copy(update={"broker_events_topic": f"test-{uuid4()}"})
    settings = kafka.settings.model_copy(update={"kafka": own})
    ensure_topics(settings)
    try:
        yield settings
    finally:
        kafka.thaw()


async def _until(condition: Callable[[], object]) -> None:
    for _ in range(round(_DEADLINE_S / _POLL_S)):
        if condition():
            return
        await asyncio.sleep(_POLL_S)
    pytest.fail(f"the condition is not true after {_DEADLINE_S} s")


class Session:
    """A publisher with a real Kafka, and its callbacks."""

    def __init__(self, settings: Settings) -> None:
        self.partition = 0
        self.opened_count = 0
        self.acks: list[Acked] = []
        self.losses: list[list[OutRecord]] = []
        self._settings = settings
        self.publisher = KafkaPublisher(
            asyncio.get_running_loop(),
            producer_config(settings),
            settings.kafka.broker_events_topic,
            LogGuard(settings, FoldedLog).check,
            self,
        )

    def opened(self) -> None:
        self.opened_count += 1

    def acked(self, records: list[Acked]) -> None:
        self.acks += records

    def failed(self, reason: str, lost: list[OutRecord]) -> None:
        self.losses.append(lost)

    def publish(self, value: bytes) -> None:
        self.publisher.publish(OutRecord(0, None, value))

    async def begin_and_publish(self, value: bytes) -> None:
        """Begin a session when possible, and wait until its first record is in the log."""
        before, acked = self.opened_count, len(self.acks)
        await _until(lambda: self.publisher.can_begin)
        self.publisher.begin()
        await _until(lambda: self.opened_count > before)
        self.publish(value)
        await _until(lambda: len(self.acks) > acked)

    async def close_and_read(self) -> list[bytes]:
        """Close the publisher after all records; returns the values in the log."""
        assert await self.publisher.close(10)
        return [r.value for r in await asyncio.to_thread(read_records, self._settings)]


async def test_records_queued_after_a_lost_record_never_reach_the_log(kafka: KafkaProcess, settings: Settings) -> None:
    session = Session(settings)
    await session.begin_and_publish(b"first")
    kafka.freeze()
    session.publish(b"lost")
    # Like a tick, the second record still has time left when the first one's time is over. The test must wait for it.
    await asyncio.sleep(_DELIVERY_TIMEOUT_MS / 2_000)
    session.publish(b"behind")
    await _until(lambda: session.losses)
    assert [r.value for r in session.losses[0]] == [b"lost", b"behind"]
    kafka.thaw()
    await session.begin_and_publish(b"again")
    assert session.opened_count == 2
    assert len(session.acks) == 2
    values = await session.close_and_read()
    # The lost record was being sent when Kafka stopped, so it may have arrived.
    assert [v for v in values if v != b"lost"] == [b"first", b"again"]
    assert values[-1] == b"again"


async def test_waiting_producer_uses_little_cpu(
    kafka: KafkaProcess, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not hold the interpreter's lock either, because the rest of the server would then wait."""
    poll, polls = KafkaNetClient.poll, 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal polls
        polls += 1
        return poll(*args, **kwargs)

    session = Session(settings)
    await session.begin_and_publish(b"first")
    monkeypatch.setattr(KafkaNetClient, "poll", counted)
    kafka.freeze()
    session.publish(b"lost")
    await _until(lambda: session.losses)
    assert polls <= _DELIVERY_TIMEOUT_MS / 10
    kafka.thaw()
    await session.begin_and_publish(b"again")
    assert (await session.close_and_read())[-1] == b"again"
