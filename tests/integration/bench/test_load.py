"""The load generator against a server that answers as it is told to."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.bench import frames
from tests.bench.compiler import compile_loadgen
from tests.bench.contenders import Contenders
from tests.bench.load import Choice, Kind, Load, Seen, Stream, run_load
from tests.bench.shape import Shape
from tests.support.scripted_peer import Asked, Script, ScriptedPeer, answered

TOPICS = [f"t{n}" for n in range(50)]
SHAPE = Shape(topics=4, brokers=3, width=2)
MakeKind = Callable[..., Kind]


@pytest.fixture
def kind(tmp_path: Path) -> MakeKind:
    """Makes a kind of request of frames."""

    def make(name: str, framed: Iterable[frames.Framed], choice: Choice = Choice.UNIFORM, share: float = 1) -> Kind:
        path = frames.write_frames(tmp_path / name, framed)
        return Kind(name, path, choice, share, has_body=name == "read")

    return make


def _run(
    script: Script, *streams: Stream, before: Kind | None = None, seconds: float = 0.3, delay_s: float = 0
) -> Seen:
    return _run_and_tell(script, *streams, before=before, seconds=seconds, delay_s=delay_s)[0]


def _run_and_tell(
    script: Script, *streams: Stream, before: Kind | None = None, seconds: float = 0.3, delay_s: float = 0
) -> tuple[Seen, list[Asked]]:
    program = compile_loadgen()
    with ScriptedPeer(script, delay_s) as peer:
        load = Load(streams, before, seconds=seconds, warm_up_s=0.05, drain_s=2)
        return run_load(program, peer.addr, load), peer.asked


def _reads(kind: MakeKind, choice: Choice = Choice.UNIFORM, share: float = 1) -> Kind:
    return kind("read", frames.route_reads(TOPICS), choice, share)


def test_sound_answers_are_no_errors(kind: MakeKind) -> None:
    seen = _run(answered, Stream((_reads(kind),), connections=3, depth=2))
    assert seen.errors == seen.unanswered == seen.unsent == 0
    assert seen.kinds["read"].answered > 100
    assert 0 < seen.longest_turn_us < seen.seconds * 1e6
    assert sum(count for _, count in seen.kinds["read"].histogram_ns) == seen.kinds["read"].answered


def test_the_ceiling_answers_as_a_name_server_does(kind: MakeKind, tmp_path: Path) -> None:
    with Contenders(tmp_path) as contenders:
        ceiling = contenders.start_ceiling(body_bytes=500)
        load = Load((Stream((_reads(kind),), connections=3),), seconds=0.3, warm_up_s=0.05, drain_s=2)
        seen = run_load(compile_loadgen(), ceiling.addr, load)
    assert seen.errors == seen.unanswered == 0
    assert seen.kinds["read"].bytes_received > 500 * seen.kinds["read"].answered > 0


def test_every_topic_is_asked_for_with_an_opaque_of_its_own(kind: MakeKind) -> None:
    _, asked = _run_and_tell(answered, Stream((_reads(kind),), connections=3, depth=2))
    assert {one.header["extFields"]["topic"] for one in asked} == set(TOPICS)
    assert len({one.header["opaque"] for one in asked}) == len(asked)


def test_zipf_asks_for_the_first_topic_most(kind: MakeKind) -> None:
    _, asked = _run_and_tell(answered, Stream((_reads(kind, Choice.ZIPF),), connections=4), seconds=0.5)
    counts = Counter(one.header["extFields"]["topic"] for one in asked)
    # The harmonic sum of 50 is 4.5.
    assert counts["t0"] / len(asked) == pytest.approx(1 / 4.5, rel=0.25)
    assert counts["t1"] / len(asked) == pytest.approx(1 / 9, rel=0.35)


def test_shares_are_kept(kind: MakeKind) -> None:
    registrations = kind("register", frames.registrations(SHAPE), Choice.IN_TURN, 0.2)
    stream = Stream((_reads(kind, share=0.8), registrations), connections=4)
    seen, asked = _run_and_tell(answered, stream, seconds=0.5)
    codes = Counter(one.header["code"] for one in asked)
    assert codes[frames.REGISTER_BROKER] / len(asked) == pytest.approx(0.2, abs=0.05)
    assert seen.kinds["register"].answered > 0


def test_frames_of_a_link_go_over_one_connection_in_turn(kind: MakeKind) -> None:
    beats = kind("beat", frames.heartbeats(SHAPE, 2), Choice.IN_TURN)
    _, asked = _run_and_tell(answered, Stream((beats,), connections=0, depth=1), seconds=0.1)
    brokers = [one.header["extFields"]["brokerName"] for one in asked]
    assert brokers[:4] == [f"bench-broker-{n}" for n in (0, 1, 2, 0)]
    assert {(one.header["extFields"]["brokerName"], one.connection) for one in asked} == {
        ("bench-broker-0", 0),
        ("bench-broker-1", 1),
        ("bench-broker-2", 0),
    }


def test_what_comes_before_is_answered_before_all_else(kind: MakeKind) -> None:
    before = kind("before", frames.registrations(SHAPE), Choice.ONCE)
    seen, asked = _run_and_tell(answered, Stream((_reads(kind),), connections=1), before=before)
    codes = [one.header["code"] for one in asked]
    assert codes[:3] == [frames.REGISTER_BROKER] * 3
    assert frames.REGISTER_BROKER not in codes[3:]
    assert seen.errors == 0


def test_once_sends_each_frame_once_when_it_is_time(kind: MakeKind) -> None:
    registrations = kind("register", frames.registrations(SHAPE), Choice.ONCE)
    storm = Stream((registrations,), connections=0, depth=100, at_s=0.1)
    seen, asked = _run_and_tell(answered, Stream((_reads(kind),), connections=1), storm)
    assert Counter(one.header["code"] for one in asked)[frames.REGISTER_BROKER] == 3
    assert seen.kinds["register"].answered == 3
    assert 0 < seen.kinds["register"].span_s < 0.2


def test_a_rate_is_kept(kind: MakeKind) -> None:
    seen = _run(answered, Stream((_reads(kind),), connections=4, rate=200), seconds=1)
    assert seen.kinds["read"].sent == pytest.approx(200, rel=0.4)


def test_with_a_rate_a_stop_is_charged_to_all_that_it_kept_waiting(kind: MakeKind) -> None:
    """One connection, 100 requests a second, each answered after 50 ms: the n-th waits for all those before it."""
    seen = _run(answered, Stream((_reads(kind),), connections=1, rate=100), seconds=1, delay_s=0.05)
    assert seen.kinds["read"].max_us > 500_000
    assert seen.unsent > 50


def test_in_a_closed_loop_a_stop_is_charged_to_one_request_a_user(kind: MakeKind) -> None:
    seen = _run(answered, Stream((_reads(kind),), connections=1), seconds=0.5, delay_s=0.05)
    assert seen.kinds["read"].p50_us == pytest.approx(50_000, rel=0.2)


@pytest.mark.parametrize(
    ("script", "field"),
    [
        (lambda asked: answered(asked, code=17), "refused"),
        (lambda asked: answered(asked, body=b""), "empty"),
        (lambda asked: answered(asked, body=b"null"), "empty"),
    ],
    ids=["refused", "no body", "no object"],
)
def test_answers_without_a_route_are_errors_and_the_loop_goes_on(kind: MakeKind, script: Script, field: str) -> None:
    seen = _run(script, Stream((_reads(kind),), connections=2))
    reads = seen.kinds["read"]
    assert getattr(reads, field) >= reads.answered > 10
    assert seen.errors == getattr(reads, field)
    assert seen.disconnected == 0


def test_the_code_of_a_refusal_is_told(kind: MakeKind) -> None:
    seen = _run(lambda asked: answered(asked, code=17), Stream((_reads(kind),), connections=1))
    assert seen.kinds["read"].last_refusal == 17


@pytest.mark.parametrize(
    ("script", "field"),
    [
        (lambda asked: answered(asked, opaque=asked.header["opaque"] + 1), "mismatched"),
        (lambda asked: answered(asked, opaque=7), "mismatched"),
        (lambda asked: answered(asked, flag=0), "malformed"),
        (lambda asked: b"\xff\xff\xff\xff", "malformed"),
        (lambda asked: b"\0\0\0\x08\0\0\0\x09{}{}", "malformed"),
        (lambda asked: None, "disconnected"),
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
def test_broken_connections_are_counted_and_given_up(kind: MakeKind, script: Script, field: str) -> None:
    seen = _run(script, Stream((_reads(kind),), connections=2))
    assert getattr(seen, field) == 2
    assert seen.kinds["read"].lost == 2
    assert seen.errors == 4


def test_answer_over_another_connection_is_a_mismatch(kind: MakeKind) -> None:
    """The second connection answers what the first one asked."""
    first: list[Asked] = []

    def script(asked: Asked) -> bytes | None:
        first.append(asked)
        return answered(first[0]) if asked.connection != first[0].connection else b""

    seen = _run(script, Stream((_reads(kind),), connections=2))
    assert seen.mismatched == 1


def test_answers_cut_anywhere_are_put_together(kind: MakeKind) -> None:
    body = b'{"queueDatas":["' + b"x" * 200_000 + b'"]}'
    seen = _run(lambda asked: answered(asked, body=body), Stream((_reads(kind),), connections=2, depth=3))
    assert seen.errors == 0
    assert seen.kinds["read"].bytes_received > 200_000 * seen.kinds["read"].answered
