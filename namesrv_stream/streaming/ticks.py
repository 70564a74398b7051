"""The job's own ticks, one to every partition: brokers of direct publishers age by them, and only those."""

import logging
import threading

from kafka import KafkaProducer
from kafka.errors import KafkaError

from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import JOB, Origin, Tick
from namesrv_stream.settings import Settings

_LOG = logging.getLogger(__name__)


class Ticker:
    """A daemon thread that sends a tick each ``liveness.tick_interval_ms``.

    Args:
        settings: Ours.
        producer: Shared with the dead letters.
        server_epoch: Of this start of the job.
    """

    def __init__(self, settings: Settings, producer: KafkaProducer, server_epoch: int) -> None:
        self._topic = settings.kafka.broker_events_topic
        self._partitions = settings.kafka.partitions
        self._interval_s = settings.liveness.tick_interval_ms / 1000
        self._producer = producer
        self._value = encode_event(Tick(Origin(JOB, server_epoch)))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="job-ticks", daemon=True)
        self._is_failing = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                for partition in range(self._partitions):
                    self._producer.send(self._topic, value=self._value, partition=partition)
            except KafkaError as error:
                # Without ticks nobody ages, which is right while nothing can be known.
                if not self._is_failing:
                    _LOG.warning("ticks cannot be sent: %s", error)
                self._is_failing = True
            else:
                self._is_failing = False
