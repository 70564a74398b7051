"""What our producers ask Kafka through, while it hangs, is away or has no leader for a partition."""

from typing import Any

import pytest
from kafka.future import Future

from namesrv_stream.kafka import producer_config
from namesrv_stream.settings import load_settings
from namesrv_stream.settings.layers import Flag


class Manager:
    """As far as kafka-python's client asks its manager of connections, which is the manager of metadata here, too."""

    def __init__(self) -> None:
        self.cluster = self
        self.delay_s = 0.0
        self.updates: list[Future] = []

    def connection_delay(self, _: int) -> float:
        return self.delay_s

    def request_update(self) -> Future:
        self.updates.append(Future())
        return self.updates[-1]


def client_of(manager: Manager) -> Any:
    flags = [Flag("test", "kafka.bootstrap_servers", "127.0.0.1:1")]
    config = producer_config(load_settings(environ={}, flags=flags).settings)
    return config["kafka_client"](net=object(), manager=manager)


@pytest.mark.parametrize(("delay_s", "told_ms"), [(0, 20), (0.5, 500)])
def test_it_is_told_how_many_milliseconds_a_connection_takes(delay_s: float, told_ms: float) -> None:
    manager = Manager()
    client = client_of(manager)
    manager.delay_s = delay_s
    assert client.connection_delay(0) == told_ms


def test_metadata_are_asked_for_again_once_they_have_come_or_failed() -> None:
    manager = Manager()
    client = client_of(manager)
    for has_failed in (False, True):
        asked = client.cluster.request_update()
        assert client.cluster.request_update() is asked is manager.updates[-1]
        if has_failed:
            asked.failure(OSError())
        else:
            asked.success(client.cluster)
    client.cluster.request_update()
    assert len(manager.updates) == 3
