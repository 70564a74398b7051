"""Reads the event log from a real Kafka."""

from pathlib import Path

import pytest
from kafka import KafkaAdminClient, TopicPartition

from namesrv_stream.errors import KafkaUnreachable
from namesrv_stream.kafka import LogReader, admin_config
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import RecordsRemoved
from tests.support.kafka import settings_for
from tests.support.spark import event_producer, own_settings

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


def _filled(kafka_settings: Settings, tmp_path: Path) -> Settings:
    settings = own_settings(kafka_settings, tmp_path, partitions=2)
    with event_producer(settings) as producer:
        for number in range(30):
            producer.send_value(str(number).encode(), partition=number % 2)
    return settings


def test_range_of_one_partition_is_read_in_order(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = _filled(kafka_settings, tmp_path)
    with LogReader(settings) as log:
        records = [record for batch in log.batches(1, 3, 9) for record in batch]
        assert [(r.partition, r.offset) for r in records] == [(1, offset) for offset in range(3, 9)]
        assert [r.value for r in records] == [str(2 * offset + 1).encode() for offset in range(3, 9)]
        assert [r.at_ms for r in records] == sorted(r.at_ms for r in records)
        assert list(log.batches(0, 15, 15)) == []
        assert sum(len(batch) for batch in log.batches(0, 0, 15)) == 15


def test_offset_is_found_by_time(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = _filled(kafka_settings, tmp_path)
    with LogReader(settings) as log:
        records = [record for batch in log.batches(0, 0, 15) for record in batch]
        wanted_ms = records[7].at_ms
        assert log.offset_at(0, wanted_ms) == next(r.offset for r in records if r.at_ms >= wanted_ms)
        assert log.offset_at(0, 0) == 0
        assert log.offset_at(0, records[-1].at_ms + 60_000) is None


def test_records_removed_from_kafka_are_an_error(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = _filled(kafka_settings, tmp_path)
    admin = KafkaAdminClient(**admin_config(settings))
    try:
        admin.delete_records({TopicPartition(settings.kafka.broker_events_topic, 0): 5})
    finally:
        admin.close()
    with LogReader(settings) as log, pytest.raises(RecordsRemoved, match=r"offset 3 .* now begins at 5"):
        list(log.batches(0, 3, 15))


def test_unreachable_kafka_is_an_error(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, embedded_kafka__listen_port="1", kafka__connect_timeout_ms="500")
    with pytest.raises(KafkaUnreachable, match=r"127\.0\.0\.1:1"):
        LogReader(settings)
