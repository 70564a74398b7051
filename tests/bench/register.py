"""Registers brokers and topics that do not exist with a name server, and keeps them alive.

``python -m tests.bench.register --help``
"""

import argparse
import json
import signal
import threading
import zlib
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.support.remoting_client import RemotingClient

REGISTER_BROKER = 103
BROKER_HEARTBEAT = 904
# Well below the 120 s after which a name server forgets a broker that named no timeout of its own.
HEARTBEAT_PERIOD_S = 20.0
_FIRST_PORT = 40_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A set of routes.

    Attributes:
        topics: Number of topics, named ``prefix0`` and on.
        brokers: Number of master brokers, each its own broker name.
        width: Brokers that hold each topic; topic ``i`` is on brokers ``i·width`` to ``i·width + width - 1``, modulo
            ``brokers``.
        prefix: See ``topics``.
        queues: Read and write queues of a topic on each of its brokers.
        cluster: Cluster of all brokers.
    """

    topics: int = 2_000
    brokers: int = 4
    width: int = 4
    prefix: str = "bench-topic-"
    queues: int = 8
    cluster: str = "bench"

    def __post_init__(self) -> None:
        """Check that each topic finds enough brokers."""
        assert 0 < self.width <= self.brokers, "a topic cannot be on more brokers than there are"

    def topics_of(self, broker: int) -> list[str]:
        """Names of the topics that a broker holds."""
        return [
            f"{self.prefix}{topic}"
            for topic in range(self.topics)
            if (broker - topic * self.width) % self.brokers < self.width
        ]


class Brokers:
    """The brokers of a shape: one connection each, registered on entering, then a heartbeat every 20 s from a thread.

    Leaving closes the connections, which removes the brokers from a name server.

    Args:
        namesrv_addr: ``host:port`` of one name server.
        shape: What to register.
        timeout_s: Seconds to wait for each answer.
    """

    def __init__(self, namesrv_addr: str, shape: Shape, timeout_s: float = 30) -> None:
        self._namesrv_addr = namesrv_addr
        self._shape = shape
        self._timeout_s = timeout_s
        self._clients: list[RemotingClient] = []
        self._leaving = threading.Event()
        self._heartbeats = threading.Thread(target=self._send_heartbeats, name="bench-heartbeats", daemon=True)

    def __enter__(self) -> Self:
        """Register all of them.

        Raises:
            AssertionError: The name server refused one.
        """
        try:
            for broker in range(self._shape.brokers):
                self._clients.append(RemotingClient(self._namesrv_addr, self._timeout_s))
                body = _registration_body(self._shape, broker)
                # As RegisterBrokerRequestHeader wants it: without the sign bit.
                crc = zlib.crc32(body) & 0x7FFFFFFF
                ext_fields = self._identity(broker) | {
                    "haServerAddr": f"127.0.0.1:{_FIRST_PORT - 1}",
                    "bodyCrc32": str(crc),
                    "compressed": "false",
                    "enableActingMaster": "false",
                }
                answer = self._clients[-1].ask(REGISTER_BROKER, ext_fields, body)
                assert answer.code == 0, f"{self._namesrv_addr} refused broker {broker}: {answer}"
        except BaseException:
            self._close()
            raise
        self._heartbeats.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self._leaving.set()
        self._heartbeats.join()
        self._close()

    def _close(self) -> None:
        for client in self._clients:
            client.close()

    def _identity(self, broker: int) -> dict[str, str]:
        return {
            "clusterName": self._shape.cluster,
            "brokerName": f"bench-broker-{broker}",
            "brokerAddr": f"127.0.0.1:{_FIRST_PORT + broker}",
            "brokerId": "0",
        }

    def _send_heartbeats(self) -> None:
        while not self._leaving.wait(HEARTBEAT_PERIOD_S):
            try:
                for broker, client in enumerate(self._clients):
                    client.ask(BROKER_HEARTBEAT, self._identity(broker))
            except OSError:
                return  # the name server is gone, which whoever measures it will see


def _registration_body(shape: Shape, broker: int) -> bytes:
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
    topics = {
        topic: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": shape.queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": shape.queues,
        }
        for topic in shape.topics_of(broker)
    }
    wrapper = {
        "dataVersion": version,
        "mappingDataVersion": version,
        "topicConfigTable": topics,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(body, separators=(",", ":")).encode()


def main() -> None:
    """Register what the command line says and keep it alive until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("namesrv_addr", help="host:port")
    default = Shape()
    parser.add_argument("--topics", type=int, default=default.topics)
    parser.add_argument("--brokers", type=int, default=default.brokers)
    parser.add_argument("--width", type=int, default=default.width, help="brokers that hold each topic")
    parser.add_argument("--prefix", default=default.prefix)
    chosen = parser.parse_args()
    shape = Shape(topics=chosen.topics, brokers=chosen.brokers, width=chosen.width, prefix=chosen.prefix)
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with Brokers(chosen.namesrv_addr, shape):
        print(f"{shape.brokers} brokers, {shape.topics} topics on {shape.width} each: registered", flush=True)
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
