"""Strategies for damaged frames, texts and bodies, and for requests of every kind made from them."""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from struct import pack
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st

from namesrv_stream.processor.dispatch import PROCESSORS
from namesrv_stream.remoting import headers
from namesrv_stream.remoting.command import LanguageCode, RemotingCommand, SerializeType
from namesrv_stream.remoting.ext_fields import wire_fields
from namesrv_stream.remoting.frame import encode_frame
from tests.support.examples import examples
from tests.support.name_server import a_body, a_topic
from tests.support.strategies_remoting import mutations
from tests.vectors.captured import captured_frames


def is_long() -> bool:
    """Whether this run may take long (``HYPOTHESIS_PROFILE=long``)."""
    return settings().max_examples > 1_000


def scaled(number: int) -> settings:
    """Return settings with this number of examples, and twenty times as many in the long profile."""
    return settings(max_examples=examples(number))


# ---- frames ----


def real_frames() -> st.SearchStrategy[bytes]:
    """Frames that brokers and clients sent to the Java name server, as they were on the wire."""
    small = [c.raw for c in captured_frames() if c.from_peer and len(c.raw) < 4_096]
    return st.sampled_from(small)


def damaged_streams() -> st.SearchStrategy[bytes]:
    """Damaged streams of a few real frames, some with wrong lengths."""
    several = st.lists(real_frames(), min_size=1, max_size=3).map(b"".join)
    return st.one_of(mutations(several), st.builds(_lying, several, st.integers(-(2**31), 2**31 - 1), st.booleans()))


def _lying(stream: bytes, number: int, in_header: bool) -> bytes:
    """Replace the length of the first frame or of its header."""
    at = 4 if in_header else 0
    return stream[:at] + pack(">i", number) + stream[at + 4 :]


# ---- texts and JSON ----

#: Texts that have caused errors before: empty, control characters, separators of Java's formats, extreme numbers, long.
AWKWARD: Final = (
    *("", " ", "\0", "\x7f\x85", "\u2028", "\ufeff", "\ufffd", "😀", "é" * 40, "a\r\nb", "a;b:c@d", "%RETRY%g", "../x"),
    *("null", "NaN", "true", "0", "-1", "2147483647", "2147483648", "-2147483648", "9223372036854775807"),
    *(
        "9223372036854775808",
        "1e999999",
        "0x10",
        "\uff11\uff12",
        "1_000",
        "+5",
        "9" * 400,
        "x" * 5_000,
        '{"$ref":"$"}',
        "\\u0000",
    ),
)


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(AWKWARD) | st.text(max_size=12).map(lambda t: t.encode("utf-8", "replace").decode())


_PROPERTIES = (
    *("topicConfigSerializeWrapper", "topicConfigTable", "topicQueueMappingInfoMap", "filterServerList", "dataVersion"),
    *("mappingDataVersion", "counter", "timestamp", "stateVersion", "topicName", "perm", "readQueueNums"),
    *("writeQueueNums", "topicSysFlag", "attributes", "currIdMap", "epoch", "scope", "bname", "dirty", "totalQueues"),
    *("queueDatas", "brokerDatas", "brokerName", "brokerAddrs", "cluster", "orderTopicConf", "$ref", "0", "TopicTest"),
)
_NUMBERS = st.sampled_from((0, 1, -1, 6, 2**31 - 1, 2**31, -(2**63), 2**63 - 1, 2**63, 2**64, 10**30, 0.5, 1e300))


def json_values() -> st.SearchStrategy[Any]:
    """JSON values of any shape, with the property names of bodies."""
    leaves = st.none() | st.booleans() | _NUMBERS | texts() | st.sampled_from(("$", "$.topicConfigTable", "$[0]"))
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_PROPERTIES), inner, max_size=5),
        max_leaves=16,
    )


#: Pieces of the dialect, and texts that do not belong to it.
_TOKENS = st.sampled_from(
    [
        *"{}[]:,'\"\\/*-+.eE0 \t\n",
        *(
            "null",
            "NaN",
            "true",
            "undefined",
            "//",
            "/*",
            "*/",
            '"a"',
            "'b'",
            "key",
            "1e999999",
            "-0",
            "1L",
            "0:",
            "\\ud800",
        ),
        *('"$ref"', '"$.a"', "\ufeff", "\0", "\x85", "9" * 30, "\\u0000", "\\x41", "\\q"),
    ]
)


def json_likes() -> st.SearchStrategy[bytes]:
    """Texts that resemble the dialect of fastjson."""
    return st.lists(_TOKENS, max_size=24).map(lambda tokens: "".join(tokens).encode("utf-8", "replace"))


# ---- bodies ----


def _topics() -> st.SearchStrategy[dict[str, dict[str, Any]]]:
    topic = st.builds(
        lambda perm, queues, flag, name: a_topic(perm, queues, flag) | name,
        st.sampled_from((0, 2, 4, 6, 7, -1)),
        st.sampled_from((0, 1, 8, 2**31 - 1)),
        st.sampled_from((0, 1, 2, 3)),
        st.sampled_from(({}, {}, {"topicName": None}, {"topicName": ""}, {"attributes": {"+a": "b"}})),
    )
    return st.dictionaries(st.sampled_from(("TopicTest", "baseTopic", "t3")) | texts(), topic, max_size=4)


def _mappings() -> st.SearchStrategy[dict[str, dict[str, Any]]]:
    mapping = st.fixed_dictionaries(
        {},
        optional={
            "topic": texts() | st.just("TopicTest"),
            "bname": texts(),
            "scope": texts(),
            "epoch": st.integers(-(2**63), 2**63 - 1),
            "totalQueues": st.integers(-1, 8),
            "dirty": st.booleans() | st.sampled_from(("true", "no")),
            "currIdMap": st.dictionaries(st.integers(0, 3).map(str), st.integers(-1, 3), max_size=3),
        },
    )
    return st.dictionaries(st.sampled_from(("TopicTest", "t3")), mapping, max_size=2)


def registration_bodies() -> st.SearchStrategy[bytes]:
    """Valid registration bodies, also with unusual names."""
    return st.builds(
        lambda topics, counter, state, mappings: a_body(
            topics,
            dataVersion={"counter": counter, "stateVersion": state, "timestamp": 1},
            topicQueueMappingInfoMap=mappings,
        ),
        _topics(),
        st.sampled_from((1, 2, 2**63 - 1, -(2**63))),
        st.integers(0, 1),
        _mappings(),
    )


def bodies() -> st.SearchStrategy[bytes | None]:
    """Bodies of every kind: absent, valid, damaged, compressed, of another request, and random bytes."""
    written = json_values().map(lambda value: json.dumps(value).encode())
    wrapped = written.map(lambda value: b'{"filterServerList":["f"],"topicConfigSerializeWrapper":' + value + b"}")
    sound = registration_bodies()
    deflated = st.binary(max_size=64) | _parts()
    return st.one_of(
        st.none(),
        sound,
        sound,
        mutations(sound),
        written,
        wrapped,
        json_likes(),
        st.binary(max_size=64),
        deflated.map(zlib.compress),
        _route_data(),
        mutations(deflated.map(zlib.compress)),
        texts().map(lambda text: f"a={text}\nlistenPort=1\n".encode()),
    )


def _route_data() -> st.SearchStrategy[bytes]:
    """Bodies of 217."""
    entry = st.fixed_dictionaries(
        {"brokerName": st.sampled_from(("broker-a", "broker-a", "broker-b")) | texts()},
        optional={"perm": json_values(), "readQueueNums": st.integers(-1, 2**31), "topicSysFlag": texts()},
    )
    return st.lists(entry, max_size=3).map(lambda entries: json.dumps({"queueDatas": entries}).encode())


def _parts() -> st.SearchStrategy[bytes]:
    """The parts of a compressed registration, with lengths and counts that may be wrong."""
    number = st.integers(-2, 3) | st.sampled_from((2**31 - 1, -(2**31), 2**24))
    json_part = st.sampled_from(
        (b"{}", b"[]", b'["f:1"]', b'{"counter":1}', b"null", b'{"currIdMap":{0:1}}', b"{'a':1}")
    )
    topic_part = st.sampled_from((b"T 8 8 6 SINGLE_TAG {}", b"T 1 1 6 X", b"    ", b"T 8", b"\xff 1 1 1 1", b""))
    counted = (json_part | topic_part).map(lambda part: pack(">i", len(part)) + part)
    lying = st.builds(lambda n, part: pack(">i", n) + part, number, json_part)
    return st.lists(counted | counted | number.map(lambda n: pack(">i", n)) | lying, max_size=8).map(b"".join)


# ---- requests ----


def wire_names() -> tuple[str, ...]:
    """The names of all ext fields that any request header declares."""
    classes = [c for c in vars(headers).values() if isinstance(c, type) and is_dataclass(c)]
    declared = {field.wire_name for c in classes for _, field in wire_fields(c)}
    return tuple(sorted(declared | {"__ZONE_MODE", "__ZONE_NAME", "AccessKey", "Signature"}))


#: A few values by name, so that most requests refer to the same things.
_USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "brokerName": ("broker-a", "broker-a", "broker-b"),
    "clusterName": ("c0", "c0", "c1"),
    "cluster": ("c0", "c1"),
    "brokerAddr": ("10.0.0.1:10911", "10.0.0.1:10911", "10.0.0.2:10911"),
    "brokerId": ("0", "0", "1", "2"),
    "haServerAddr": ("10.0.0.1:10912",),
    "topic": ("TopicTest", "baseTopic", "t3"),
    "namespace": ("ORDER_TOPIC_CONFIG", "ns"),
    "key": ("TopicTest", "k"),
    "value": ("broker-a:4", "v"),
    "bodyCrc32": ("0",),
    "compressed": ("false", "false", "false", "true"),
    "enableActingMaster": ("true", "false"),
    "heartbeatTimeoutMillis": ("10000", "0", "-1", "9223372036854775807"),
}


@st.composite
def ext_fields(draw: st.DrawFn) -> dict[str, str] | None:
    """Ext fields of usual requests, with some replaced, removed or added."""
    if draw(st.integers(0, 19)) == 0:
        return None
    fields = {name: draw(st.sampled_from(values)) for name, values in _USUAL.items()}
    for name in draw(st.lists(st.sampled_from(wire_names()), max_size=3)):
        fields[name] = draw(texts())
    for name in draw(st.lists(st.sampled_from(sorted(fields)), max_size=2)):
        fields.pop(name, None)
    return fields


#: The bodies that some codes need.
_BODY_OF: Final[Mapping[int, Callable[[], st.SearchStrategy[bytes]]]] = {
    103: lambda: registration_bodies(),
    217: lambda: _route_data(),
    318: lambda: st.sampled_from((b"enableTopicList=true", b"x=1", b"waitSecondsForService=1\nkvConfigPath=x")),
    322: lambda: st.sampled_from((b'{"counter":1,"stateVersion":0,"timestamp":1}', b"{}")),
}


@st.composite
def requests(draw: st.DrawFn) -> RemotingCommand:
    """Requests of every supported code and some unsupported ones; most have the fields of their code."""
    served = sorted(map(int, PROCESSORS))
    code = draw(st.sampled_from([*served, *(103,) * 8, 104, 105, 105, 217, 322, -1, 0, 1001, 2**15 - 1]))
    asked = _BODY_OF.get(code, st.none)()
    return RemotingCommand(
        code=code,
        language=draw(st.sampled_from(LanguageCode)),
        version=draw(st.sampled_from((479, 479, 407, 61, 0, -1, 2**15 - 1))),
        opaque=draw(st.integers(-(2**31), 2**31 - 1)),
        flag=draw(st.sampled_from((0, 0, 0, 2))),
        ext_fields=draw(ext_fields()),
        body=draw(st.one_of(asked, asked, asked, bodies())),
        serialize_type=draw(st.sampled_from((SerializeType.JSON, SerializeType.JSON, SerializeType.ROCKETMQ))),
    )


def damaged_requests() -> st.SearchStrategy[bytes]:
    """Frames of requests, valid in half of the cases."""
    written: st.SearchStrategy[bytes] = requests().map(encode_frame)
    return written | mutations(written)
