"""How long until a change that one server accepted is in another server's memory, through Kafka, Spark and Delta."""

import json
import random
import statistics
import time
import zlib
from dataclasses import dataclass
from typing import Any, Final

from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient

_REGISTER_BROKER: Final = 103
_GET_ROUTEINFO_BY_TOPIC: Final = 105
_POLL_S: Final = 0.002
_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Visibility:
    """Milliseconds from the answer to a registration at one server to the route at another, sorted."""

    ms: tuple[float, ...]
    own_ms: tuple[float, ...]

    def summary(self) -> dict[str, Any]:
        cuts = statistics.quantiles(self.ms, n=100, method="inclusive")
        return {
            "changes": len(self.ms),
            "other_server_p50_ms": round(cuts[49], 1),
            "other_server_p90_ms": round(cuts[89], 1),
            "other_server_p99_ms": round(cuts[98], 1),
            "other_server_max_ms": round(max(self.ms), 1),
            "own_server_p50_ms": round(statistics.median(self.own_ms), 2),
        }


def measure(accepting: str, other: str, changes: int) -> Visibility:
    """Register ``changes`` new topics at one server, one after the other at random distances, and wait for each."""
    ms: list[float] = []
    own_ms: list[float] = []
    pause = random.Random(1)
    with RemotingClient(accepting) as broker, RemotingClient(other) as client:
        for i in range(changes):
            topic = f"visible-{i}"
            fields, body = registration(i, topic)
            began = time.monotonic()
            assert broker.ask(_REGISTER_BROKER, fields, body).code == 0
            accepted = time.monotonic()
            assert broker.ask(_GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0
            own_ms.append((time.monotonic() - began) * 1000)
            wait_until(lambda t=topic: _is_routed(client, t), _TIMEOUT_S, f"{topic} at the other server")  # type: ignore[misc]
            ms.append((time.monotonic() - accepted) * 1000)
            time.sleep(pause.uniform(0, 0.3))  # so that changes fall anywhere within a batch
    return Visibility(tuple(sorted(ms)), tuple(sorted(own_ms)))


def _is_routed(client: RemotingClient, topic: str) -> bool:
    return client.ask(_GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0


def registration(version: int, topic: str) -> tuple[dict[str, str], bytes]:
    """Header fields and body of a registration of one broker that gets one topic more each time."""
    queues = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    table = {name: {"topicName": name, **queues} for name in ("visible-base", topic)}
    wrapper = {"dataVersion": {"counter": version, "timestamp": 1, "stateVersion": 0}, "topicConfigTable": table}
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    fields = {
        "brokerName": "visible-broker",
        "brokerAddr": "127.0.0.1:10999",
        "clusterName": "bench",
        "haServerAddr": "127.0.0.1:10998",
        "brokerId": "0",
        "enableActingMaster": "false",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
    }
    return fields, body
