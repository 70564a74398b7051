"""Unusual requests to a server with some state: each is answered, and the log can store every accepted event."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.dispatch import PROCESSORS
from namesrv_stream.processor.name_server import Access, Answer, Peer
from namesrv_stream.remoting.command import RemotingCommand, ResponseCode
from namesrv_stream.remoting.frame import MAX_FRAME_BYTES, FrameBuffer, decode_frame, encode_frame
from namesrv_stream.route.event_json import decode_record, encode_event
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from namesrv_stream.server.net.response_cache import ResponseCache
from tests.fuzz.hostile import AWKWARD, damaged_requests, requests, scaled, wire_names
from tests.support.builders import Log
from tests.support.name_server import SLAVE, Exchange, a_registration_request, a_route_request
from tests.vectors.captured import captured_frames


def a_server() -> Exchange:
    """Return a server that has a master and a slave of one name, and accepts requests of every peer."""
    exchange = Exchange()
    exchange.server.access = Access(enable_config_update=True)
    exchange.send(a_registration_request())
    exchange.send(a_registration_request(SLAVE, 1), connection=2)
    return exchange


def decoded_request(raw: bytes) -> RemotingCommand | None:
    """Return the request in a frame if it reaches a processor."""
    try:
        frame = next(FrameBuffer().feed(raw), None)
        request = None if frame is None else decode_frame(frame)
    except RemotingError:
        return None
    return request


def check(answer: Answer, request: RemotingCommand) -> None:
    response = answer.response
    assert type(int(response.code)) is int
    assert response.opaque == request.opaque
    assert len(encode_frame(response)) < MAX_FRAME_BYTES
    if response.code != ResponseCode.SUCCESS:
        assert answer.accepted == ()
    for logged, applied in answer.accepted:
        for event in (logged, applied):
            assert event is None or decode_record(encode_event(event)) == [event]


def folded(exchange: Exchange) -> RouteTable:
    """Fold the log of the server as the job does."""
    log = Log()
    for event in exchange.logged:
        log.append(encode_event(event))
    assert log.output.dead_letters == []
    table = RouteTable()
    apply(table, log.output.changes)
    return table


def check_agreement(exchange: Exchange) -> None:
    committed, seen = folded(exchange), exchange.view.table
    assert committed.groups == seen.groups
    assert committed.kv == seen.kv


@scaled(60)
@given(st.lists(st.tuples(requests(), st.integers(1, 3)), min_size=1, max_size=8))
def test_every_request_is_answered_and_the_job_agrees_with_the_server(
    sent: Sequence[tuple[RemotingCommand, int]],
) -> None:
    exchange = a_server()

    for request, connection in sent:
        arrived = decoded_request(encode_frame(request))
        if arrived is not None:
            check(exchange.send(arrived, connection), arrived)

    check_agreement(exchange)


@scaled(60)
@given(st.lists(damaged_requests(), min_size=1, max_size=4))
def test_damaged_requests_are_answered_or_raise_a_remoting_error(sent: Sequence[bytes]) -> None:
    exchange = a_server()

    for raw in sent:
        arrived = decoded_request(raw)
        if arrived is not None:
            check(exchange.send(arrived), arrived)

    check_agreement(exchange)


@scaled(40)
@given(requests())
def test_refused_request_changes_nothing(request: RemotingCommand) -> None:
    exchange = a_server()
    groups, kv = dict(exchange.view.table.groups), dict(exchange.view.table.kv)

    if exchange.send(decode_frame(encode_frame(request)[4:])).response.code == ResponseCode.SUCCESS:
        return

    assert exchange.view.table.groups == groups
    assert exchange.view.table.kv == kv
    assert exchange.view.pending_count == 2


@scaled(40)
@given(requests())
def test_untrusted_peer_cannot_make_admin_changes(request: RemotingCommand) -> None:
    exchange = a_server()
    exchange.peer = Peer("203.0.113.7", False)

    answer = exchange.send(decode_frame(encode_frame(request)[4:]))

    assert not answer.is_logged_first or request.code == 217
    assert not answer.options


@scaled(40)
@given(requests(), st.integers(0, 2**31 - 1))
def test_cached_responses_never_differ_from_those_of_the_processors(request: RemotingCommand, opaque: int) -> None:
    exchange = a_server()
    responses = ResponseCache()
    exchange.view.watch(responses.changed)
    frame = encode_frame(request)[4:]
    answer = exchange.send(decode_frame(frame))
    responses.keep(frame, decode_frame(frame), answer, encode_frame(answer.response), 1)
    again = encode_frame(replace(request, opaque=opaque))[4:]

    cached = responses.find(again, 1)

    assert cached is None or cached[0] == encode_frame(exchange.send(decode_frame(again)).response)


def test_real_requests_in_any_order_are_answered_and_folded_as_the_server_applied_them() -> None:
    exchange = a_server()
    for captured in reversed([c for c in captured_frames() if c.from_peer]):
        check(exchange.send(captured.command, captured.connection), captured.command)

    check_agreement(exchange)


@pytest.mark.parametrize("code", sorted(map(int, PROCESSORS)))
def test_unusual_text_in_every_field_is_answered_and_folded_as_the_server_applied_it(code: int) -> None:
    exchange = a_server()
    for text in AWKWARD:
        for body in (None, text.encode(), json.dumps({"queueDatas": [{"brokerName": text}]}).encode()):
            request = RemotingCommand(code, version=479, ext_fields=dict.fromkeys(wire_names(), text), body=body)
            check(exchange.send(decode_frame(encode_frame(request)[4:])), request)

    check_agreement(exchange)


def test_server_of_these_tests_has_a_route_for_its_topic() -> None:
    assert a_server().send(a_route_request()).response.code == ResponseCode.SUCCESS
