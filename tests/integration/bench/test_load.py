"""The load generator against a server whose answers a test scripts."""

import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.bench import frames
from tests.bench.compiler import compile_loadgen
from tests.bench.contenders import Contenders
from tests.bench.load import Choice, Kind, Load, Seen, Stream, run_load
from tests.bench.shape import Shape

pytestmark = pytest.mark.alone

TOPICS = [f"t{n}" for n in range(50)]
SHAPE = Shape(topics=4, brokers=3, width=2)
MakeKind = Callable[..., Kind]


@dataclass(frozen=True, slots=True)
class Request:
    """A received request.

    Attributes:
        connection: Number of its connection; connections are counted from 0 in the order of opening.
        number: Number of the request, counted from 0 over all connections.
        header: The JSON header.
        body: The body.
    """

    connection: int
    number: int
    header: dict[str, Any]
    body: bytes


#: What to write for a request; None closes the connection instead.
Script = Callable[[Request], bytes | None]


def respond(request: Request, *, code: int = 0, body: bytes = b'{"queueDatas":[]}', **header: object) -> bytes:
    """Return the frame of an answer, as the Java server writes it."""
    fields = {
        "code": code,
        "flag": 1,
        "language": "JAVA",
        "opaque": request.header["opaque"],
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
        **header,
    }
    text = json.dumps(fields, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


class ScriptedPeer:
    """A server on 127.0.0.1 that answers by a script, with a thread for each connection."""

    def __init__(self, script: Script, delay_s: float = 0) -> None:
        self._script = script
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self.requests: list[Request] = []

    @property
    def addr(self) -> str:
        """``host:port``."""
        return "{}:{}".format(*self._listener.getsockname())

    def __enter__(self) -> Self:
        """Start listening."""
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything."""
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                number = len(self._sockets)
                self._sockets.append(accepted)
                self._start(lambda accepted=accepted, number=number: self._serve(accepted, number))  # type: ignore[misc]

    def _serve(self, accepted: socket.socket, connection: int) -> None:
        with suppress(OSError), accepted.makefile("rb") as stream:
            while prefix := stream.read(4):
                payload = stream.read(int.from_bytes(prefix, "big"))
                header_bytes = int.from_bytes(payload[1:4], "big")
                header = json.loads(payload[4 : 4 + header_bytes])
                with self._lock:
                    request = Request(connection, len(self.requests), header, payload[4 + header_bytes :])
                    self.requests.append(request)
                time.sleep(self._delay_s)
                answer = self._script(request)
                if answer is None:
                    accepted.shutdown(socket.SHUT_RDWR)
                    return
                accepted.sendall(answer)


@pytest.fixture
def kind(tmp_path: Path) -> MakeKind:
    """Return a function that makes a kind of request from frames."""

    def make(name: str, framed: Iterable[frames.Framed], choice: Choice = Choice.UNIFORM, share: float = 1) -> Kind:
        path = frames.write_frames(tmp_path / name, framed)
        return Kind(name, path, choice, share, has_body=name == "read")

    return make


def _run(
    script: Script, *streams: Stream, before: Kind | None = None, seconds: float = 0.3, delay_s: float = 0
) -> Seen:
    return _run_and_record(script, *streams, before=before, seconds=seconds, delay_s=delay_s)[0]


def _run_and_record(
    script: Script, *streams: Stream, before: Kind | None = None, seconds: float = 0.3, delay_s: float = 0
) -> tuple[Seen, list[Request]]:
    program = compile_loadgen()
    with ScriptedPeer(script, delay_s) as peer:
        load = Load(streams, before, seconds=seconds, warm_up_s=0.05, drain_s=2)
        return run_load(program, peer.addr, load), peer.requests


def _reads(kind: MakeKind, choice: Choice = Choice.UNIFORM, share: float = 1) -> Kind:
    return kind("read", frames.route_reads(TOPICS), choice, share)


def test_correct_answers_are_not_errors(kind: MakeKind) -> None:
    seen = _run(respond, Stream((_reads(kind),), connections=3, depth=2))
    assert seen.errors == seen.unanswered == seen.unsent == 0
    assert seen.kinds["read"].answered > 100
    assert 0 < seen.longest_turn_us < seen.seconds * 1e6
    assert sum(count for _, count in seen.kinds["read"].histogram_ns) == seen.kinds["read"].answered


def test_ceiling_server_answers_like_a_name_server(kind: MakeKind, tmp_path: Path) -> None:
    with Contenders(tmp_path) as contenders:
        ceiling = contenders.start_ceiling(body_bytes=500)
        load = Load((Stream((_reads(kind),), connections=3),), seconds=0.3, warm_up_s=0.05, drain_s=2)
        seen = run_load(compile_loadgen(), ceiling.addr, load)
    assert seen.errors == seen.unanswered == 0
    assert seen.kinds["read"].bytes_received > 500 * seen.kinds["read"].answered > 0


def test_every_topic_is_requested_and_every_request_has_its_own_opaque(kind: MakeKind) -> None:
    _, requests = _run_and_record(respond, Stream((_reads(kind),), connections=3, depth=2))
    assert {request.header["extFields"]["topic"] for request in requests} == set(TOPICS)
    assert len({request.header["opaque"] for request in requests}) == len(requests)


def test_zipf_requests_the_first_topic_most(kind: MakeKind) -> None:
    _, requests = _run_and_record(respond, Stream((_reads(kind, Choice.ZIPF),), connections=4), seconds=0.5)
    counts = Counter(request.header["extFields"]["topic"] for request in requests)
    # The harmonic sum of 50 is 4.5.
    assert counts["t0"] / len(requests) == pytest.approx(1 / 4.5, rel=0.25)
    assert counts["t1"] / len(requests) == pytest.approx(1 / 9, rel=0.35)


def test_requests_are_mixed_by_their_shares(kind: MakeKind) -> None:
    registrations = kind("register", frames.registrations(SHAPE), Choice.IN_TURN, 0.2)
    stream = Stream((_reads(kind, share=0.8), registrations), connections=4)
    seen, requests = _run_and_record(respond, stream, seconds=0.5)
    codes = Counter(request.header["code"] for request in requests)
    assert codes[frames.REGISTER_BROKER] / len(requests) == pytest.approx(0.2, abs=0.05)
    assert seen.kinds["register"].answered > 0


def test_frames_of_a_link_go_over_one_connection_in_turn(kind: MakeKind) -> None:
    beats = kind("beat", frames.heartbeats(SHAPE, 2), Choice.IN_TURN)
    _, requests = _run_and_record(respond, Stream((beats,), connections=0, depth=1), seconds=0.1)
    brokers = [request.header["extFields"]["brokerName"] for request in requests]
    assert brokers[:4] == [f"bench-broker-{n}" for n in (0, 1, 2, 0)]
    assert {(request.header["extFields"]["brokerName"], request.connection) for request in requests} == {
        ("bench-broker-0", 0),
        ("bench-broker-1", 1),
        ("bench-broker-2", 0),
    }


def test_preparation_is_answered_before_the_load_begins(kind: MakeKind) -> None:
    before = kind("before", frames.registrations(SHAPE), Choice.ONCE)
    seen, requests = _run_and_record(respond, Stream((_reads(kind),), connections=1), before=before)
    codes = [request.header["code"] for request in requests]
    assert codes[:3] == [frames.REGISTER_BROKER] * 3
    assert frames.REGISTER_BROKER not in codes[3:]
    assert seen.errors == 0


def test_once_sends_every_frame_once_on_schedule(kind: MakeKind) -> None:
    registrations = kind("register", frames.registrations(SHAPE), Choice.ONCE)
    storm = Stream((registrations,), connections=0, depth=100, at_s=0.1)
    seen, requests = _run_and_record(respond, Stream((_reads(kind),), connections=1), storm)
    assert Counter(request.header["code"] for request in requests)[frames.REGISTER_BROKER] == 3
    assert seen.kinds["register"].answered == 3
    assert 0 < seen.kinds["register"].span_s < 0.2


def test_requests_are_sent_at_the_given_rate(kind: MakeKind) -> None:
    seen = _run(respond, Stream((_reads(kind),), connections=4, rate=200), seconds=1)
    assert seen.kinds["read"].sent == pytest.approx(200, rel=0.4)


def test_open_loop_charges_a_pause_to_every_delayed_request(kind: MakeKind) -> None:
    """One connection, 100 requests a second, an answer after 50 ms: every request waits for all earlier ones."""
    seen = _run(respond, Stream((_reads(kind),), connections=1, rate=100), seconds=1, delay_s=0.05)
    assert seen.kinds["read"].max_us > 500_000
    assert seen.unsent > 50


def test_closed_loop_charges_a_pause_to_one_request_per_connection(kind: MakeKind) -> None:
    seen = _run(respond, Stream((_reads(kind),), connections=1), seconds=0.5, delay_s=0.05)
    assert seen.kinds["read"].p50_us == pytest.approx(50_000, rel=0.2)


@pytest.mark.parametrize(
    ("script", "field"),
    [
        (lambda request: respond(request, code=17), "refused"),
        (lambda request: respond(request, body=b""), "empty"),
        (lambda request: respond(request, body=b"null"), "empty"),
    ],
    ids=["refused", "no body", "no object"],
)
def test_answers_without_a_route_are_errors_and_the_load_continues(kind: MakeKind, script: Script, field: str) -> None:
    seen = _run(script, Stream((_reads(kind),), connections=2))
    reads = seen.kinds["read"]
    assert getattr(reads, field) >= reads.answered > 10
    assert seen.errors == getattr(reads, field)
    assert seen.disconnected == 0


def test_code_of_a_refusal_is_reported(kind: MakeKind) -> None:
    seen = _run(lambda request: respond(request, code=17), Stream((_reads(kind),), connections=1))
    assert seen.kinds["read"].last_refusal == 17


@pytest.mark.parametrize(
    ("script", "field"),
    [
        (lambda request: respond(request, opaque=request.header["opaque"] + 1), "mismatched"),
        (lambda request: respond(request, opaque=7), "mismatched"),
        (lambda request: respond(request, flag=0), "malformed"),
        (lambda request: b"\xff\xff\xff\xff", "malformed"),
        (lambda request: b"\0\0\0\x08\0\0\0\x09{}{}", "malformed"),
        (lambda request: None, "disconnected"),
    ],
    ids=[
        "opaque of nobody",
        "small opaque",
        "a request",
        "a length beyond all frames",
        "header beyond the frame",
        "closed",
    ],
)
def test_broken_connections_are_counted_and_not_reopened(kind: MakeKind, script: Script, field: str) -> None:
    seen = _run(script, Stream((_reads(kind),), connections=2))
    assert getattr(seen, field) == 2
    assert seen.kinds["read"].lost == 2
    assert seen.errors == 4


def test_answer_over_another_connection_is_a_mismatch(kind: MakeKind) -> None:
    """The second connection receives the answer to a request of the first one."""
    first: list[Request] = []

    def script(request: Request) -> bytes | None:
        first.append(request)
        return respond(first[0]) if request.connection != first[0].connection else b""

    seen = _run(script, Stream((_reads(kind),), connections=2))
    assert seen.mismatched == 1


def test_answers_split_anywhere_are_reassembled(kind: MakeKind) -> None:
    body = b'{"queueDatas":["' + b"x" * 200_000 + b'"]}'
    seen = _run(lambda request: respond(request, body=body), Stream((_reads(kind),), connections=2, depth=3))
    assert seen.errors == 0
    assert seen.kinds["read"].bytes_received > 200_000 * seen.kinds["read"].answered
