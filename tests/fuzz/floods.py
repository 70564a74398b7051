"""The kinds of floods: what one connection sends, again and again, to fill a server's memory."""

import random
import ssl
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import count, repeat
from struct import pack
from typing import Final, Literal, NamedTuple

from tests.fuzz.bombs import BOMBS, binary_header, json_header, registration, zeros
from tests.support.name_server import a_body, a_broker_header, a_topic
from tests.support.remoting_client import encode_request
from tests.vectors.captured import captured_frames

PUT_KV, REGISTER, UNREGISTER, ROUTE, CLUSTERS, TOPICS, REGISTER_TOPIC, DATA_VERSION, HEARTBEAT = (
    *(100, 103, 104, 105, 106, 206),
    *(217, 322, 904),
)
#: The topics of a broker that is registered during each flood, so that lists are long.
FLEET: Final = {f"Topic-of-some-team-{number:06}": a_topic() for number in range(20_000)}
_SMALL: Final = 1 << 16


class Kind(NamedTuple):
    """A kind of flood.

    Attributes:
        pieces: Number of a connection → what it sends, piece by piece.
        reads: Whether it reads answers.
        stays: Whether it waits after the last piece until the server closes it; otherwise it ends after the answers.
        fills: The cache with a documented limit (docs/limits.md) that it fills, which is full before the measurement.
    """

    pieces: Callable[[int], Iterable[bytes]]
    reads: bool = True
    stays: bool = False
    fills: str = ""
    port: Literal["remoting", "http"] = "remoting"


def endless(piece: Callable[[], bytes], *, reads: bool = True) -> Kind:
    """The same piece, again and again."""
    kept = cache(piece)
    return Kind(lambda _: repeat(kept()), reads)


def varied(request: Callable[[int], bytes], fills: str = "") -> Kind:
    """Requests that all differ: the function gets numbers that no other request of this flood has."""

    def pieces(connection: int) -> Iterator[bytes]:
        for first in count(connection << 32, 200):
            yield b"".join(map(request, range(first, first + 200)))

    return Kind(pieces, fills=fills)


def once(piece: Callable[[], bytes], *, reads: bool = True, stays: bool = False) -> Kind:
    """One piece for each connection."""
    kept = cache(piece)
    return Kind(lambda _: [kept()], reads, stays)


def asked(code: int, body: bytes = b"", /, **fields: str) -> bytes:
    return encode_request(code, 7, fields, body)


def of_broker(code: int, number: int, body: bytes = b"", /, **changes: str) -> bytes:
    addr = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:10911"
    return asked(code, body, **a_broker_header(addr, **({"brokerName": f"b{number}", "haServerAddr": addr} | changes)))


def registered(number: int, topics: int, named: int, **changes: str) -> bytes:
    """The registration of a broker with topics whose names differ by ``named``."""
    body = a_body({f"topic-{named}-{one}": a_topic() for one in range(topics)}, counter=named + 1)
    crc = str(zlib.crc32(body) & 0x7FFFFFFF)
    return of_broker(REGISTER, number, body, **({"bodyCrc32": crc, "enableActingMaster": "false"} | changes))


def cut(announced: int, sent: int) -> bytes:
    """A frame whose prefix announces more bytes than are sent, or the rest of which is rubbish."""
    return pack(">iI", announced, announced - 4) + b"{" * (sent - 8)


def changing(connection: int) -> Iterator[bytes]:
    """Eight brokers, each with 100 topics that are others every time."""
    for turn in count():
        yield registered(connection % 8, 100, turn + (connection << 20))


def damaged(raw: bytes, dice: random.Random) -> bytes:
    """Damage a frame: changed, removed or duplicated bytes, or a wrong length; one of three frames stays intact."""
    data = bytearray(raw)
    for _ in range(dice.choice((0, 1, 3))):
        start = dice.randrange(len(data)) if data else 0
        end = min(len(data), start + dice.randrange(1, 16))
        match dice.randrange(5):
            case 0:
                data[start:end] = dice.randbytes(end - start)
            case 1:
                del data[start:end]
            case 2:
                data[end:end] = data[start:end]
            case 3:
                data[0:4] = pack(">i", dice.choice((-1, 0, 3, 4, 2**31 - 1, 1 << 24, len(data))))
            case _:
                data[4:8] = dice.randbytes(4)
    return bytes(data)


def in_pieces(connection: int) -> Iterator[bytes]:
    """Damaged frames of real peers, from single bytes to all at once; few, so that many connections are opened."""
    dice = random.Random(connection)
    frames = [c.raw for c in captured_frames() if c.from_peer and len(c.raw) < 32_768]
    stream = b"".join(damaged(dice.choice(frames), dice) for _ in range(20))
    while stream:
        size = dice.choice((1, 7, 512, len(stream)))
        yield stream[:size]
        stream = stream[size:]


def tls_hello() -> bytes:
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="ns")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError


def get(path: str, *lines: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: localhost", *lines, "", "")).encode()


def http(kind: Kind) -> Kind:
    return kind._replace(port="http")


def unread(path: str) -> Kind:
    """As many requests as the server accepts on one connection without an answer; it is never read."""
    return http(once(lambda: get(path) * 200, reads=False, stays=True))


def filling(head: bytes, piece: Callable[[int], bytes], size: int) -> bytes:
    return head + b"".join(piece(number) for number in range(size))


_ROWS: Final = "rows for followers of /changes"
_ROUTE_QUERY: Final = asked(ROUTE, topic="Topic-of-some-team-000001")
_LARGE: Final = cache(lambda: registered(1, 70_000, 1, brokerName="large"))

KINDS: Final[dict[str, Kind]] = {
    # Frames.
    "broken frames of 20 B": endless(lambda: cut(16, 20) * 100),
    "broken frames of 64 KiB": endless(lambda: cut(_SMALL - 4, _SMALL)),
    "broken frames of 8 MiB": endless(lambda: cut((8 << 20) - 4, 8 << 20)),
    "damaged frames of real peers": Kind(in_pieces),
    "half frames that stay open": once(lambda: cut(15 << 20, 14 << 20), stays=True),
    "half frames over new connections": once(lambda: cut(8 << 20, 4 << 20), reads=False),
    "wrong frame lengths": Kind(lambda n: [pack(">i", (-1, 0, 3, 1 << 24, 2**31 - 1)[n % 5]) + bytes(_SMALL)]),
    "random bytes": endless(partial(random.Random(1).randbytes, 1 << 20)),
    "many ext fields": endless(
        lambda: encode_request(ROUTE, 7, {"topic": "t"} | {f"field-{n}": "x" * 400 for n in range(900)})
    ),
    "too many ext fields": endless(
        lambda: json_header(b'{"code":105,"extFields":{"a":"b"%s}}' % filling(b"", lambda n: b',"%x":""' % n, 40_000))
    ),
    "new ext fields": varied(
        lambda n: asked(ROUTE, **{"topic": "Topic-of-some-team-000001", f"f{n}": "x" * 200}),
        fills="answers in the native lane",
    ),
    "binary headers": endless(lambda: binary_header(bytes(6) * 900) * 20),
    # Bodies.
    "registrations with a wrong checksum": endless(lambda: registered(1, 20, 1, bodyCrc32="1") * 20),
    "large registrations with a wrong checksum": endless(lambda: registered(1, 70_000, 1, bodyCrc32="1")),
    "deflated zeros of 16 GiB": endless(BOMBS["zlib 1000:1, 16 GiB of zeros"]),
    "deflated zeros of 16 MiB": endless(lambda: registration(zeros(16), compressed=True) * 20),
    "topics that are refused": endless(BOMBS["empty topics"]),
    "registrations in the dialect": endless(BOMBS["the largest permitted text in the dialect"]),
    "small registrations in the dialect": endless(lambda: registration(b"{'a':[" + b"1," * 1_500 + b"0]}") * 20),
    "references": endless(BOMBS["references to a long text"]),
    "queues of topics of unknown brokers": endless(
        lambda: asked(REGISTER_TOPIC, b'{"queueDatas":[%s{}]}' % (b'{"brokerName":"x"},' * 250), topic="T") * 20
    ),
    # Registrations, heartbeats and their like.
    "large registrations": endless(_LARGE)._replace(fills=_ROWS),
    "frames behind a large request": endless(lambda: _LARGE() + _ROUTE_QUERY * 20_000)._replace(fills=_ROWS),
    "changing registrations": Kind(changing, fills=_ROWS),
    "heartbeats of unknown brokers": varied(partial(of_broker, HEARTBEAT), fills="cached responses"),
    "data versions of unknown brokers": varied(lambda n: of_broker(DATA_VERSION, n, b'{"counter":1}')),
    "unregistrations of unknown brokers": varied(partial(of_broker, UNREGISTER)),
    # Requests.
    "a new connection for each request": once(lambda: _ROUTE_QUERY),
    "pipelined requests": endless(lambda: _ROUTE_QUERY * 500),
    "oneway requests": endless(lambda: _ROUTE_QUERY.replace(b'"flag":0', b'"flag":2') * 500),
    "unread routes": endless(lambda: _ROUTE_QUERY * 500, reads=False),
    "unread clusters": endless(lambda: asked(CLUSTERS) * 500, reads=False),
    "unread lists of topics": endless(lambda: asked(TOPICS) * 500, reads=False),
    "unknown topics": varied(lambda n: asked(ROUTE, topic=f"unknown-{n}")),
    "unknown codes": varied(lambda n: asked(n % 30_000 + 1_000)),
    "answers without a request": endless(lambda: _ROUTE_QUERY.replace(b'"flag":0', b'"flag":1') * 500),
    "refused changes of KV": endless(
        lambda: b"PROXY TCP4 10.9.9.9 10.9.9.8 1 2\r\n" + asked(PUT_KV, namespace="n", key="k", value="v" * 9_000) * 500
    ),
    # Other protocols.
    "TLS hellos": once(tls_hello),
    "TLS hellos with rubbish behind": once(lambda: tls_hello() + bytes(_SMALL)),
    "TLS records that do not end": once(lambda: b"\x16\x03\x01\x3f\xff" + bytes(16_000), stays=True),
    "HTTP on the remoting port": once(lambda: get("/metrics") * 1_000),
    # The HTTP port.
    "probes over new connections": http(once(lambda: get("/healthz", "Connection: close"))),
    "large bodies": http(once(lambda: get("/", "Content-Length: 99999999").replace(b"GET", b"POST") + bytes(8 << 20))),
    "half heads that stay open": http(once(lambda: get("/", "X: " + "x" * 15_000)[:-2], stays=True)),
    "frames on the HTTP port": http(once(lambda: _ROUTE_QUERY * 500)),
    "pipelined GETs": http(endless(lambda: get("/brokers") * 20)),
    "unread /metrics": unread("/metrics"),
    "unread /brokers": unread("/brokers"),
    "unread /changes/state": unread("/changes/state"),
    "unread /topics": unread("/topics"),
    "followers that do not read": http(
        once(lambda: get("/changes", "Accept: text/event-stream"), reads=False, stays=True)
    ),
}  # fmt: skip
