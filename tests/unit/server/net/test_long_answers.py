"""Bodies that take long are computed in turns, once for all equal requests, and again after a change."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from namesrv_stream.processor.name_server import LongBody
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.server.net.long_answers import LongAnswers
from namesrv_stream.server.turns import Turns
from tests.support.name_server import a_body, a_registration_request, a_topic
from tests.support.server_rig import AT_ONCE_NS, Rig, turn

LISTS = (106, 206, 224, 304, 311, 312, 313)


class Bodies:
    """Long bodies of some pieces, and how many were begun."""

    def __init__(self) -> None:
        self.begun = 0

    def body(self, version: int, key: str = "k", pieces: int = 3) -> LongBody:
        def compute() -> Iterator[bytes]:
            self.begun += 1
            for _ in range(pieces):
                yield b"%d" % version

        return LongBody((key,), version, compute)


async def test_equal_requests_share_one_computation_and_its_body() -> None:
    answers, bodies, got = LongAnswers(Turns(0)), Bodies(), list[bytes | None]()
    for _ in range(1_000):
        assert answers.get(bodies.body(1), got.append) is None
    while len(got) < 1_000:
        await turn()
    assert (set(got), bodies.begun) == ({b"111"}, 1)
    assert answers.get(bodies.body(1), got.append) == b"111"
    assert len({id(body) for body in got}) == 1


async def test_requests_after_a_change_wait_for_a_computation_that_begins_after_them() -> None:
    answers, bodies, got = LongAnswers(Turns(0)), Bodies(), list[tuple[int, bytes | None]]()
    for version in (1, 2, 2, 3, 3):
        answers.get(bodies.body(version), lambda body, version=version: got.append((version, body)))  # type: ignore[misc]
        await turn()
    for _ in range(20):
        await turn()
    assert got == [(1, b"111"), (2, b"333"), (2, b"333"), (3, b"333"), (3, b"333")]
    assert bodies.begun == 2


async def test_a_short_body_is_known_at_once() -> None:
    answers, bodies = LongAnswers(Turns(AT_ONCE_NS)), Bodies()
    assert answers.get(bodies.body(1), lambda body: None) == b"111"


async def test_a_computation_that_fails_is_reported_to_all_who_wait() -> None:
    def fail() -> Iterator[bytes]:
        yield b""
        raise ValueError("a bug")

    got: list[bytes | None] = []
    answers = LongAnswers(Turns(0))
    for _ in range(2):
        answers.get(LongBody(("k",), 1, fail), got.append)
    for _ in range(5):
        await turn()
    assert got == [None, None]
    with pytest.raises(RuntimeError):
        LongAnswers(Turns(AT_ONCE_NS)).get(LongBody(("k",), 1, fail), got.append)


async def test_kept_bodies_are_few_and_small() -> None:
    answers, bodies = LongAnswers(Turns(AT_ONCE_NS)), Bodies()
    for number in range(200):
        answers.get(bodies.body(1, key=str(number)), lambda body: None)
    large = LongBody(("large",), 1, lambda: iter([bytes(80 << 20)]))
    assert len(answers.get(large, lambda body: None) or b"") == 80 << 20
    assert answers.kept_bytes == 64 * 3


def a_fleet(rig: Rig) -> None:
    for number in range(3):
        topics = {f"topic-{number}-{i}": a_topic(flag=i % 4) for i in range(10)} | {"shared": a_topic()}
        request = a_registration_request(
            f"10.0.0.{number}:1", brokerName=f"b{number}", clusterName=f"c{number % 2}", body=a_body(topics)
        )
        assert rig.ask(rig.connect(), request).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", LISTS)
async def test_an_answer_that_is_computed_in_turns_is_that_which_is_computed_at_once(code: int) -> None:
    bodies = []
    for piece_ns in (AT_ONCE_NS, 0):
        rig = Rig(turns=Turns(AT_ONCE_NS))
        rig.talk()
        a_fleet(rig)
        rig.core.services.turns.piece_ns = piece_ns
        client = rig.connect()
        requests = [RemotingCommand(code, opaque=i, ext_fields={"cluster": "c0"}) for i in range(3)]
        query = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, opaque=3, ext_fields={"topic": "shared"})
        client.deliver(b"".join(map(encode_frame, [*requests, query])))
        for _ in range(40):
            await turn()
        answers = client.answers()
        assert [answer.opaque for answer in answers] == [0, 1, 2, 3], "in the order of the requests"
        assert not client.is_reading_paused
        bodies.append([replace(answer, opaque=0).body for answer in answers])
    assert bodies[0] == bodies[1]


async def test_a_list_shows_a_change_that_its_peer_made_before() -> None:
    rig = Rig(turns=Turns(0))
    rig.talk()
    client, broker = rig.connect(), rig.connect()
    for number in range(3):
        client.deliver(encode_frame(RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)))
        await turn()
        body = a_body({f"new-{number}": a_topic(), "x": a_topic()}, counter=number + 1)
        broker.deliver(encode_frame(a_registration_request(body=body)))
        while len(broker.answers()) <= number:
            await turn()
        broker.deliver(encode_frame(RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)))
        while len(broker.answers()) <= number + 1 + number:
            await turn()
        assert b"new-%d" % number in (broker.answers()[-1].body or b"")


async def test_a_connection_that_closes_while_its_answer_is_computed_is_forgotten() -> None:
    rig = Rig(turns=Turns(0))
    rig.talk()
    client = rig.connect()
    client.deliver(encode_frame(RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)))
    await turn()
    client.abort()
    for _ in range(5):
        await turn()
    assert (client.received, len(rig.connections)) == (b"", 0)
