"""Unusual and damaged bodies, for every decoder: the result is an error or a value that the log can store."""

import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.processor.register_body import decode_data_version, decode_register_body
from namesrv_stream.remoting import fastjson, java_properties
from namesrv_stream.route.event_json import decode_record, encode_event
from namesrv_stream.route.events import BrokerRegistered, Origin
from namesrv_stream.route.model import Registration
from tests.fuzz.hostile import bodies, json_likes, json_values, registration_bodies, scaled, texts
from tests.support.strategies_remoting import mutations

VERSIONS = st.sampled_from((479, 407, 61, 0, -1))


@scaled(250)
@given(bodies(), st.booleans(), VERSIONS)
def test_registration_body_can_be_logged_or_raises_a_body_decode_error(
    body: bytes | None, compressed: bool, version: int
) -> None:
    try:
        decoded = decode_register_body(body or b"", compressed=compressed, version=version)
    except BodyDecodeError:
        return
    registered = BrokerRegistered(
        Origin("s1", 1, 1),
        Registration(
            "c0",
            "broker-a",
            "10.0.0.1:10911",
            0,
            "",
            decoded.data_version,
            decoded.topics,
            topic_mappings=decoded.topic_mappings,
            filter_servers=decoded.filter_servers,
        ),
    )
    assert decode_record(encode_event(registered)) == [registered]


@scaled(120)
@given(st.binary(max_size=32) | json_likes() | json_values().map(lambda value: json.dumps(value).encode()))
def test_data_version_is_decoded_or_raises_a_body_decode_error(body: bytes) -> None:
    try:
        version = decode_data_version(body)
    except BodyDecodeError:
        return
    assert version is None or all(-(2**63) <= number < 2**63 for number in version)


@scaled(250)
@given(json_likes() | mutations(registration_bodies()) | texts().map(str.encode))
def test_text_that_resembles_json_is_decoded_or_raises_a_value_error(text: bytes) -> None:
    for loads in (fastjson.loads, fastjson.loads_lenient, fastjson.loads_written):
        try:
            value = loads(text)
        except ValueError:
            continue
        _walk(value, 0)


@scaled(120)
@given(json_values())
def test_json_readers_return_equal_values(value: Any) -> None:
    text = json.dumps(value).encode()

    assert _outcome(fastjson.loads_written, text) == _outcome(fastjson.loads_lenient, text)


@scaled(120)
@given(texts() | st.text(st.sampled_from("ab=: \t\\\n\ru00eé#!"), max_size=24))
def test_properties_text_is_decoded_or_raises_a_value_error(text: str) -> None:
    try:
        properties = java_properties.loads(text.encode("utf-8"))
    except ValueError:
        return
    assert java_properties.loads(java_properties.dumps(properties)) == properties


@pytest.mark.parametrize("level", [0, 9])
def test_truncated_compressed_body_is_refused(level: int) -> None:
    whole = zlib.compress(b"\x00\x00\x00\x02{}\x00\x00\x00\x00\x00\x00\x00\x02[]\x00\x00\x00\x00", level)
    assert not decode_register_body(whole, compressed=True, version=479).topics

    for size in range(1, len(whole)):
        with pytest.raises(BodyDecodeError):
            decode_register_body(whole[:size], compressed=True, version=479)


def _outcome(loads: Callable[[bytes], Any], text: bytes) -> Any:
    """Return the decoded value, with numbers by value: orjson reads integers beyond 64 bits as floats."""
    try:
        return _rounded(loads(text))
    except ValueError:
        return ValueError


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _walk(value: Any, depth: int) -> None:
    """Visit all parts of a decoded value, as its users do."""
    assert depth <= 1_024
    if isinstance(value, dict):
        for key, item in value.items():
            key.encode()
            _walk(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _walk(item, depth + 1)
    elif isinstance(value, str):
        value.encode()
