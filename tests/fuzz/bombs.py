"""The most expensive requests that fit into a frame, and their cost in memory and time.

``python -m tests.fuzz.bombs`` sends each to a server in a separate process and writes one line of JSON per request.
"""

import json
import os
import resource
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import count
from struct import pack
from typing import Any, Final

from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.register_body import MAX_ENTRIES
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import MAX_FRAME_BYTES, MAX_HEADER_BYTES, FrameBuffer, decode_frame, encode_frame
from namesrv_stream.route.event_json import encode_event
from tests.support.name_server import V5_3_3, Exchange, a_broker_header, a_registration_request

_ROOM: Final = MAX_FRAME_BYTES - 1_024  # bytes for the body of the largest frame
_HEADER_ROOM: Final = MAX_HEADER_BYTES - 64
_MEMORY_LIMIT_BYTES: Final = 4 << 30
_TIME_LIMIT_S: Final = 120
_PIECE_BYTES: Final = 256 * 1024

REGISTER, UNREGISTER, ROUTE, REGISTER_TOPIC, UPDATE_CONFIG, DATA_VERSION = 103, 104, 105, 217, 318, 322


def filled(head: bytes, piece: Callable[[int], bytes], tail: bytes, room: int = _ROOM) -> bytes:
    """Return ``head``, as many pieces as fit, joined by commas, and ``tail``."""
    pieces: list[bytes] = []
    size = len(head) + len(tail)
    for number in count():
        part = piece(number)
        size += len(part) + 1
        if size > room:
            return head + b",".join(pieces) + tail
        pieces.append(part)
    raise AssertionError


def in_wrapper(member: str) -> tuple[bytes, bytes]:
    return b'{"filterServerList":[],"topicConfigSerializeWrapper":{"%s":{' % member.encode(), b"}}}"


TOPICS = in_wrapper("topicConfigTable")
MAPPINGS = in_wrapper("topicQueueMappingInfoMap")


def registration(body: bytes, *, compressed: bool = False) -> bytes:
    return encode_frame(a_registration_request(body=body, compressed="true" if compressed else "false"))


def deflated(data: bytes, level: int = 1) -> bytes:
    return registration(zlib.compress(data, level), compressed=True)


def parts(*of: bytes | int) -> bytes:
    """Encode parts with their lengths, and numbers without."""
    return b"".join(pack(">i", part) if isinstance(part, int) else pack(">i", len(part)) + part for part in of)


def request(code: int, body: bytes, **fields: str) -> bytes:
    return encode_frame(RemotingCommand(code, version=V5_3_3, ext_fields=a_broker_header(**fields), body=body))


def json_header(header: bytes) -> bytes:
    return pack(">iI", 4 + len(header), len(header)) + header


def binary_header(ext_fields: bytes) -> bytes:
    fixed = pack(">hbhiii", REGISTER, 0, V5_3_3, 1, 0, 0)
    header = fixed + pack(">i", len(ext_fields)) + ext_fields
    return pack(">iI", 4 + len(header), 1 << 24 | len(header)) + header


def zeros(mib: int) -> bytes:
    deflater = zlib.compressobj(9)
    return b"".join([deflater.compress(bytes(1 << 20)) for _ in range(mib)]) + deflater.flush()


BOMBS: Final[dict[str, Callable[[], bytes]]] = {
    # Deflated.
    "zlib 1000:1, 16 GiB of zeros": lambda: registration((zeros(1_024) * 16)[:_ROOM], compressed=True),
    "zlib 1000:1, 16 MiB of zeros": lambda: deflated(bytes(16 << 20), 9),
    "zlib in zlib": lambda: deflated(zlib.compress(bytes(15 << 20), 9), 9),
    "zlib that announces two thousand million topics": lambda: deflated(parts(b"{}", 2**31 - 1)),
    "zlib full of topics": lambda: deflated(parts(b"{}", 1_200_000) + parts(b"T 1 1 1 ") * 1_200_000),
    "zlib full of static topics": lambda: deflated(parts(b"{}", 0, b"[]", 2_000_000) + parts(b"{}") * 2_000_000),
    "zlib full of static topics in the dialect": lambda: deflated(
        parts(b"{}", 0, b"[]", 1_000_000) + parts(b"{'a':1}") * 1_000_000
    ),
    "zlib with one part in the dialect": lambda: deflated(parts(b"[" + b"'a'," * 3_500_000 + b"0]")),
    "zlib with a topic of spaces": lambda: deflated(parts(b"{}", 1, b" " * (15 << 20))),
    # JSON.
    "100,000 brackets": lambda: registration(b"[" * 100_000),
    "a frame of brackets": lambda: registration(b"[" * _ROOM),
    "a frame of braces with integer keys": lambda: registration(b"{0:" * (_ROOM // 3)),
    "a frame of digits": lambda: registration(b"9" * _ROOM),
    "1e999999": lambda: registration(b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1e999999}}}'),
    "a frame of NaN": lambda: registration(filled(b"[", lambda _: b"NaN", b"]")),
    "empty topics": lambda: registration(filled(TOPICS[0], lambda n: b'"%x":{}' % n, TOPICS[1])),
    "the permitted number of empty topics": lambda: registration(
        TOPICS[0] + b",".join(b'"%x":{}' % n for n in range(MAX_ENTRIES)) + TOPICS[1]
    ),
    "empty static topics": lambda: registration(filled(MAPPINGS[0], lambda n: b'"%x":{}' % n, MAPPINGS[1])),
    "the permitted number of empty static topics": lambda: registration(
        MAPPINGS[0] + b",".join(b'"%x":{}' % n for n in range(MAX_ENTRIES)) + MAPPINGS[1]
    ),
    "a static topic of a million queues": lambda: registration(
        filled(MAPPINGS[0] + b'"t":{"currIdMap":{', lambda n: b"%d:0" % n, b"}}" + MAPPINGS[1])
    ),
    "empty lists": lambda: registration(filled(b"[", lambda _: b"[]", b"]")),
    "the permitted number of empty lists": lambda: registration(b"[" + b"[]," * 990_000 + b"0]" + b" " * (12 << 20)),
    "filter servers": lambda: registration(filled(b'{"filterServerList":[', lambda n: b'"%x"' % n, b"]}")),
    "topics of control characters": lambda: registration(
        filled(TOPICS[0], lambda n: b'"%x%s":{}' % (n, b"\\u0001" * 200), TOPICS[1])
    ),
    "one topic name": lambda: registration(TOPICS[0] + b'"' + b"t" * (_ROOM - 200) + b'":{}' + TOPICS[1]),
    "one topic name that an error quotes": lambda: registration(
        TOPICS[0] + b'"' + b"t" * (_ROOM - 200) + b'":[]' + TOPICS[1]
    ),
    "equal keys": lambda: registration(filled(TOPICS[0], lambda _: b'"t":{"order":false,"x":1}', TOPICS[1])),
    "stamps": lambda: registration(b'"mappingDataVersion":{' * (_ROOM // 22)),
    # References.
    "references to a long text": lambda: registration(
        filled(
            b'{"x":"' + b"x" * (8 << 20) + b'","topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{',
            lambda n: b'"%d":{"bname":{"$ref":"$.x"}}' % n,
            b"}}}",
        )
    ),
    "references to an object": lambda: registration(
        filled(
            b'{"x":{"x":"' + b"x" * (8 << 20) + b'"},"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{',
            lambda n: b'"%d":{"bname":{"$ref":"$.x"}}' % n,
            b"}}}",
        )
    ),
    "references to a long list": lambda: registration(
        filled(b'{"a":[' + b"1," * 900_000 + b'1],"b":[', lambda _: b'{"$ref":"$.a"}', b"]}")
    ),
    "references in a circle": lambda: registration(
        filled(b"[", lambda n: b'{"$ref":"$[%d]"}' % (n + 1), b',{"$ref":"$[0]"}]')
    ),
    "references to their own container": lambda: registration(filled(b'{"a":[', lambda _: b'{"$ref":"$.a"}', b"]}")),
    "a reference with a long path": lambda: registration(b'{"a":{"$ref":"$' + b"[0]" * (5 << 20) + b'"}}'),
    # The dialect.
    "a frame of the dialect": lambda: registration(b"['a'" + b",1" * (_ROOM // 2 - 8) + b"]"),
    "the largest permitted text in the dialect": lambda: registration(b"['a'" + b",1" * (255 * 1024) + b"]"),
    "comments": lambda: registration(b"/**/" * (_ROOM // 4)),
    "comments that do not end": lambda: registration(b"/*" * (255 * 1024)),
    "a text that does not end": lambda: registration(b"'" + b"a" * (_ROOM - 8)),
    # Headers.
    "a frame that is all header": lambda: json_header(b'{"code":105,"remark":"' + b"x" * _ROOM + b'"}'),
    "a header of brackets": lambda: json_header(b"[" * _HEADER_ROOM),
    "a header of ext fields": lambda: json_header(
        filled(b'{"code":103,"extFields":{', lambda n: b'"%x":""' % n, b"}}", _HEADER_ROOM)
    ),
    "a header of numbers": lambda: json_header(
        filled(b'{"code":103,"extFields":{', lambda n: b'"%x":0' % n, b"}}", _HEADER_ROOM)
    ),
    "a header with a fraction": lambda: json_header(b'{"extFields":{"a":1.5,"b":"' + b"x" * 500_000 + b'"}}'),
    "a header of the dialect": lambda: json_header(b"{a:['a'" + b",1" * (31 * 1024) + b"]}"),
    "a binary header of empty entries": lambda: binary_header(bytes(6) * (_HEADER_ROOM // 6)),
    "a long broker name": lambda: binary_header(
        b"".join(
            parts_of_entry(name, value)
            for name, value in (
                (b"brokerName", b"\x01" * (_HEADER_ROOM - 200)),
                (b"clusterName", b"c"),
                (b"brokerAddr", b"a:1"),
                (b"brokerId", b"0"),
            )
        )
    ),
    "a route query for a long topic": lambda: request(ROUTE, b"", topic="t" * (_HEADER_ROOM - 300)),
    # Other requests.
    "queue data of one topic": lambda: request(
        REGISTER_TOPIC, filled(b'{"queueDatas":[', lambda n: b'{"brokerName":"%x"}' % n, b"]}"), topic="T"
    ),
    "a data version": lambda: request(DATA_VERSION, b'{"counter":"' + b"9" * (15 << 20) + b'"}'),
    "properties of a long key": lambda: request(UPDATE_CONFIG, b"k" * (4 << 20)),
    "properties of many lines": lambda: request(UPDATE_CONFIG, b"a=b\n" * (1 << 20)),
}  # fmt: skip


def parts_of_entry(key: bytes, value: bytes) -> bytes:
    return pack(">h", len(key)) + key + pack(">i", len(value)) + value


def exploded(stream: bytes) -> dict[str, Any]:
    """Send a stream to a server; returns the outcome, the accepted and answered bytes, and the cost."""
    exchange = Exchange()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, began_cpu = time.perf_counter(), time.process_time()
    outcome, accepted_bytes, answer_bytes = "not a complete frame", 0, 0
    buffer = FrameBuffer()
    try:
        for at in range(0, len(stream), _PIECE_BYTES):
            for frame in buffer.feed(stream[at : at + _PIECE_BYTES]):
                answer = exchange.send(decode_frame(frame))
                outcome = f"code {answer.response.code}"
                answer_bytes = len(encode_frame(answer.response))
                accepted_bytes = sum(len(encode_event(event.logged)) for event in answer.accepted)
    except RemotingError as error:
        outcome = type(error).__name__
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "outcome": outcome,
        "frame_bytes": len(stream),
        "seconds": round(seconds, 3),
        "cpu_s": round(cpu_s, 3),
        "grown_mib": (after - before) // 1024,
        "accepted_bytes": accepted_bytes,
        "answer_bytes": answer_bytes,
    }


def _in_a_child(stream: bytes) -> dict[str, Any]:
    """Run ``exploded`` in a process with limited memory, so that the peak is its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        signal.alarm(_TIME_LIMIT_S)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT_BYTES, _MEMORY_LIMIT_BYTES))
        try:
            result = exploded(stream)
        except BaseException as error:
            result = {"outcome": f"raised {type(error).__name__}: {error}"[:300]}
        os.write(writer, json.dumps(result).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        output = pipe.read()
    _, status = os.waitpid(pid, 0)
    of_child: dict[str, Any] = json.loads(output) if output else {"outcome": f"died with status {status}"}
    return of_child


def main(names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names or BOMBS:
        yield {"bomb": name, **_in_a_child(BOMBS[name]())}


if __name__ == "__main__":
    for line in main(sys.argv[1:]):
        print(json.dumps(line), flush=True)
