"""The requests that the load generator sends, as whole frames; made without code of the product, like a peer's."""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.shape import Shape
from tests.support.name_server import a_topic_config
from tests.support.remoting_client import VERSION, encode_request

GET_ROUTEINFO_BY_TOPIC: Final = 105
REGISTER_BROKER: Final = 103
QUERY_DATA_VERSION: Final = 322
BROKER_HEARTBEAT: Final = 904
#: The load generator replaces this number in every frame that it sends.
OPAQUE: Final = 1_000_000_000
#: Timeout of the brokers: the longest permitted one, so that none expires while another server is measured.
TIMEOUT_MS: Final = 3_600_000
_STAMP_MS: Final = 1_700_000_000_000


class Framed(NamedTuple):
    """A frame and the connection that it goes over.

    Attributes:
        frame: The frame with its length prefix.
        link: Number of a shared connection from 1 on; 0 for the sender's own connection.
    """

    frame: bytes
    link: int = 0


def write_frames(path: Path, frames: Iterable[Framed]) -> Path:
    """Write a file for the load generator; ``workload.h`` describes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for frame, link in frames:
            file.write(struct.pack(">I", link))
            file.write(frame)
    return path


def route_reads(topics: Iterable[str], *, version: int = VERSION) -> Iterator[Framed]:
    """Yield GET_ROUTEINFO_BY_TOPIC for each topic; from ``version`` 401 on, the answer is strict JSON."""
    for topic in topics:
        yield Framed(encode_request(GET_ROUTEINFO_BY_TOPIC, OPAQUE, {"topic": topic}, version=version))


def registrations(shape: Shape, *, changes: Iterable[int] = (0,), stamps: Iterable[int] = (0,)) -> Iterator[Framed]:
    """Yield REGISTER_BROKER of all brokers, broker ``n`` over link ``n + 1``, once for each change and stamp.

    Args:
        shape: The brokers and their topics.
        changes: Each is another DataVersion; in all but 0, one topic has more queues.
        stamps: Each is another ``mappingDataVersion``, as an unchanged broker of 5.x sends it.
    """
    topics = [shape.topics_of(broker) for broker in range(shape.brokers)]
    for change in changes:
        for stamp in stamps:
            # Brokers with the same topics have the same body.
            bodies: dict[tuple[str, ...], bytes] = {}
            for broker, held in enumerate(topics):
                key = tuple(held)
                if key not in bodies:
                    bodies[key] = registration_body(shape, held, change, stamp)
                yield Framed(registration(shape.identity_of(broker), bodies[key]), broker + 1)


def registration(identity: Mapping[str, str], body: bytes, *, timeout_ms: int = TIMEOUT_MS) -> bytes:
    """Return a REGISTER_BROKER of a broker with the timeout ``timeout_ms``."""
    ext_fields = {
        **identity,
        "haServerAddr": "127.0.0.1:39999",
        # RegisterBrokerRequestHeader needs it without the sign bit.
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        "compressed": "false",
        "enableActingMaster": "false",
        "heartbeatTimeoutMillis": str(timeout_ms),
    }
    return encode_request(REGISTER_BROKER, OPAQUE, ext_fields, body)


def heartbeats(shape: Shape, links: int) -> Iterator[Framed]:
    """Yield BROKER_HEARTBEAT of all brokers, which share this number of connections."""
    for broker in range(shape.brokers):
        ext_fields = {**shape.identity_of(broker), "heartbeatTimeoutMillis": str(TIMEOUT_MS)}
        yield Framed(encode_request(BROKER_HEARTBEAT, OPAQUE, ext_fields), broker % links + 1)


def version_queries(shape: Shape, links: int) -> Iterator[Framed]:
    """Yield QUERY_DATA_VERSION of all brokers with the version of change 0, over this number of connections."""
    body = json.dumps(_data_version(0), separators=(",", ":")).encode()
    for broker in range(shape.brokers):
        yield Framed(encode_request(QUERY_DATA_VERSION, OPAQUE, shape.identity_of(broker), body), broker % links + 1)


def registration_body(shape: Shape, topics: Iterable[str], change: int = 0, stamp: int = 0) -> bytes:
    """Return the body of REGISTER_BROKER; see ``registrations``."""
    table = {topic: a_topic_config(topic, shape.queues) for topic in topics}
    if change and table:
        names = list(table)
        changed = names[change % len(names)]
        table[changed] = a_topic_config(changed, shape.queues + 1)
    wrapper = {
        "dataVersion": _data_version(change),
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": _STAMP_MS + stamp},
        "topicConfigTable": table,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    body = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(body, separators=(",", ":")).encode()


def _data_version(change: int) -> dict[str, int]:
    return {"counter": 1 + change, "stateVersion": 0, "timestamp": _STAMP_MS}
