"""Brings an edited configuration file into the log, and leaves what was changed at run time alone otherwise."""

import logging

from kafka import KafkaProducer

from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import JOB, Origin, SettingsChanged
from namesrv_stream.route.liveness_settings import SettingValue
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings
from namesrv_stream.settings.configured import SOURCE, changed_settings
from namesrv_stream.tables.snapshot import load_settings_table
from namesrv_stream.tables.storage import tables_of

_LOG = logging.getLogger(__name__)


def log_changed_settings(settings: Settings, producer: KafkaProducer, server_epoch: int) -> dict[str, SettingValue]:
    """Log what the configuration says otherwise than it did when it was logged last; blocks.

    Each partition is asked for itself: an earlier start may have reached some of them only.

    Returns:
        The settings logged, with their new values.

    Raises:
        kafka.errors.KafkaError: Kafka did not take them.
    """
    table = load_settings_table(tables_of(settings))
    changed_in = {
        partition: changed_settings(settings, configured_settings(table, partition))
        for partition in range(settings.kafka.partitions)
    }
    sent = []
    for partition, changed in changed_in.items():
        if changed:
            _LOG.info("the configuration has changed partition=%d settings=%s", partition, changed)
            event = SettingsChanged(Origin(JOB, server_epoch), SOURCE, tuple(sorted(changed.items())))
            topic = settings.kafka.broker_events_topic
            sent.append(producer.send(topic, value=encode_event(event), partition=partition))
    for future in sent:
        future.get(timeout=settings.kafka.delivery_timeout_ms / 1000)
    return {name: value for changed in changed_in.values() for name, value in changed.items()}


def configured_settings(table: RouteTable, partition: int) -> dict[str, str]:
    """Name → JSON text of what one partition was last told as the configuration's."""
    settings = table.settings_of(partition)
    return {name: text for (namespace, name), text in settings.items() if namespace == SOURCE}
