"""The requests of the load generator are those of real peers: decoded, and compared with captured frames."""

import struct
import zlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from namesrv_stream.processor.register_body import decode_register_body
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame
from namesrv_stream.route.model import DataVersion
from tests.bench import frames
from tests.bench.shape import Shape
from tests.vectors.captured import captured_frames

SHAPE = Shape(topics=6, brokers=4, width=2)


def _command(framed: frames.Framed) -> RemotingCommand:
    assert int.from_bytes(framed.frame[:4], "big") == len(framed.frame) - 4
    return decode_frame(framed.frame[4:])


def _body(framed: frames.Framed) -> bytes:
    return _command(framed).body or b""


def _captured(code: int) -> RemotingCommand:
    """Return the first captured request of a Java peer 5.3.3 with this code."""
    return next(
        one.command
        for one in captured_frames()
        if one.from_peer and one.command.code == code and one.command.version == 479
    )


@pytest.mark.parametrize(
    ("framed", "more_than_captured"),
    [
        (next(frames.route_reads(["orders"])), set()),
        (next(frames.registrations(SHAPE)), {"heartbeatTimeoutMillis"}),
        (next(frames.version_queries(SHAPE, 1)), set()),
    ],
    ids=["105", "103", "322"],
)
def test_header_has_the_fields_of_a_captured_request(framed: frames.Framed, more_than_captured: set[str]) -> None:
    command = _command(framed)
    real = _captured(command.code)
    assert set(command.ext_fields or {}) - set(real.ext_fields or {}) <= more_than_captured
    # Brokers send some of these oneway; the load generator needs answers.
    assert (command.version, command.language, command.is_oneway) == (real.version, real.language, False)


def test_load_generator_finds_the_opaque_in_the_header() -> None:
    for framed in (*frames.route_reads(["orders"]), *frames.registrations(SHAPE), *frames.heartbeats(SHAPE, 2)):
        (header_bytes,) = struct.unpack_from(">I", framed.frame, 4)
        assert framed.frame[8 : 8 + header_bytes].count(b'"opaque":1000000000') == 1


def test_registration_is_decoded_to_the_topics_of_its_broker() -> None:
    for broker, framed in enumerate(frames.registrations(SHAPE)):
        command = _command(framed)
        body = decode_register_body(command.body or b"", compressed=False, version=command.version)
        assert sorted(body.topics) == sorted(SHAPE.topics_of(broker))
        assert (command.ext_fields or {})["bodyCrc32"] == str(zlib.crc32(command.body or b"") & 0x7FFFFFFF)
        assert framed.link == broker + 1


def test_every_change_has_a_new_version_and_more_queues_of_one_topic() -> None:
    first, *changed = frames.registrations(Shape(topics=3, brokers=1, width=1), changes=range(3))
    before = decode_register_body(_body(first), compressed=False, version=479)
    for number, framed in enumerate(changed, 1):
        body = decode_register_body(_body(framed), compressed=False, version=479)
        assert body.data_version == DataVersion(1 + number, before.data_version.timestamp, 0)
        assert [name for name in body.topics if body.topics[name] != before.topics[name]] == [f"bench-topic-{number}"]


def test_unchanged_registrations_differ_only_in_their_time_stamp() -> None:
    one, other = frames.registrations(Shape(topics=3, brokers=1, width=1), stamps=range(2))
    wrappers: list[dict[str, Any]] = [
        orjson.loads(_body(framed))["topicConfigSerializeWrapper"] for framed in (one, other)
    ]
    stamps = [wrapper.pop("mappingDataVersion") for wrapper in wrappers]
    assert stamps[0] != stamps[1]
    assert wrappers[0] == wrappers[1]


def test_registration_body_has_the_fields_of_a_captured_one() -> None:
    real: dict[str, Any] = orjson.loads(_captured(frames.REGISTER_BROKER).body or b"")
    ours: dict[str, Any] = orjson.loads(frames.registration_body(SHAPE, ["orders"]))
    assert ours.keys() == real.keys()
    wrapper, real_wrapper = (body["topicConfigSerializeWrapper"] for body in (ours, real))
    assert wrapper.keys() == real_wrapper.keys()
    (topic,) = wrapper["topicConfigTable"].values()
    assert topic.keys() == next(iter(real_wrapper["topicConfigTable"].values())).keys()


def test_heartbeats_share_their_connections() -> None:
    assert [framed.link for framed in frames.heartbeats(SHAPE, 3)] == [1, 2, 3, 1]


def test_file_contains_link_and_frame_of_each_request(tmp_path: Path) -> None:
    framed = list(frames.registrations(SHAPE))
    written = frames.write_frames(tmp_path / "frames", framed).read_bytes()
    assert written == b"".join(struct.pack(">I", one.link) + one.frame for one in framed)


def test_topic_is_on_as_many_brokers_as_its_width() -> None:
    held = [topic for broker in range(SHAPE.brokers) for topic in SHAPE.topics_of(broker)]
    assert all(held.count(topic) == SHAPE.width for topic in SHAPE.topic_names)
