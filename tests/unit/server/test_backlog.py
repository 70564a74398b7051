"""A waiting request keeps its brokers alive, and a tick is logged after everything that was received before it."""

from collections.abc import Iterable

import orjson

from namesrv_stream.remoting.command import RemotingCommand, RequestCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.events import BrokerHeartbeat
from namesrv_stream.server.gateway.observed_time import Backlog
from namesrv_stream.server.turns import Turns
from tests.support.name_server import a_body, a_broker_header, a_registration_request, a_topic
from tests.support.server_rig import MemoryTransport, Rig, turn

#: Shorter than the time, by the manual clock, that the requests before the victim's take.
TIMEOUT_MS = 10_000
#: The topics of a large registration. The event loop answers one large request per iteration.
LONG_TABLE = {f"a-topic-with-a-name-of-usual-length-{i}": a_topic() for i in range(400)}
#: Registrations before the victim's, and iterations of the event loop per tick: together more than two timeouts.
STORM, TURNS_PER_TICK = 50, 1
VICTIM = "victim"


class Peer:
    def heartbeats(self) -> Iterable[BrokerHeartbeat]:
        return ()


def a_registration(name: str, addr: str, counter: int, *, is_long: bool = True) -> RemotingCommand:
    """Return a registration of a broker that is alone in its cluster, so the guard does not act."""
    return a_registration_request(
        addr,
        body=a_body(LONG_TABLE if is_long else None, counter=counter),
        brokerName=name,
        clusterName=f"c-{name}",
        heartbeatTimeoutMillis=str(TIMEOUT_MS),
    )


def a_heartbeat() -> bytes:
    header = a_broker_header("10.9.0.1:10911", brokerName=VICTIM, clusterName=f"c-{VICTIM}")
    return encode_frame(RemotingCommand(RequestCode.BROKER_HEARTBEAT, ext_fields=header))


def register_victim(peer: MemoryTransport, counter: int, *, is_long: bool) -> None:
    peer.deliver(encode_frame(a_registration(VICTIM, "10.9.0.1:10911", counter, is_long=is_long)))


async def a_rig_with_a_victim() -> tuple[Rig, MemoryTransport]:
    rig = Rig(queue_records=1_000, record_bytes=20 << 20, turns=Turns(0))  # one request in a turn
    rig.talk()
    victim = rig.connect()
    register_victim(victim, 1, is_long=False)
    await turn()
    await turn()
    rig.commit()
    return rig, victim


def begin_storm(rig: Rig) -> None:
    for number in range(STORM):
        registration = a_registration(f"b{number}", f"10.8.0.{number}:10911", 1)
        rig.connect().deliver(encode_frame(registration))


async def work_off(rig: Rig, victim: MemoryTransport) -> int:
    """Tick and commit until the victim is answered; return the number of ticks."""
    before, ticks = len(victim.received), 0
    while len(victim.received) == before:
        for _ in range(TURNS_PER_TICK):
            await turn()
        rig.beat()
        rig.connections.beat(rig.gateway.observed_ms)
        ticks += 1
        of_victim = [r for r in rig.commit() if r.broker_name == VICTIM and r.gone]
        assert [(r.kind, r.cause, r.detail) for r in of_victim] == []
        assert not victim.is_closing()
    return ticks


async def test_a_broker_whose_registration_waits_stays_registered_and_connected() -> None:
    rig, victim = await a_rig_with_a_victim()
    begin_storm(rig)
    register_victim(victim, 2, is_long=True)
    ticks = await work_off(rig, victim)

    assert ticks * 505 > 2 * TIMEOUT_MS
    assert rig.view.table.group(VICTIM).is_registered


async def test_a_reconnected_broker_stays_registered_while_its_registration_waits() -> None:
    """The server does not know yet which broker uses the new connection."""
    rig, victim = await a_rig_with_a_victim()
    assert victim.protocol is not None
    victim.protocol.abort("a limit of the server")
    begin_storm(rig)
    again = rig.connect()
    register_victim(again, 2, is_long=True)
    ticks = await work_off(rig, again)

    assert ticks * 505 > 2 * TIMEOUT_MS
    assert rig.view.table.group(VICTIM).is_registered


async def test_a_tick_is_logged_after_everything_that_was_received_before_it() -> None:
    rig, victim = await a_rig_with_a_victim()
    begin_storm(rig)
    register_victim(victim, 2, is_long=True)
    rig.beat()
    ticks = rig.publisher.kinds().count("tick")
    while rig.gateway.backlog.waiting:
        await turn()
    rig.publisher.ack()
    kinds = rig.publisher.kinds()
    assert kinds.count("broker_registered") == 2 + STORM
    assert kinds.count("tick") == ticks + 1
    assert kinds[-1] == "tick"


async def test_a_peer_with_several_waiting_requests_delays_a_tick_by_one_of_them() -> None:
    rig, victim = await a_rig_with_a_victim()
    for counter in range(2, 6):
        register_victim(victim, counter, is_long=True)
    rig.beat()
    while rig.publisher.kinds().count("tick") == 0:
        await turn()
        rig.publisher.ack()
    kinds = rig.publisher.kinds()
    assert kinds.count("broker_registered") == 2
    assert rig.gateway.backlog.waiting
    heard = orjson.loads(rig.publisher.log[kinds.index("tick") - 1].value)
    assert [item["broker_name"] for item in heard["items"]] == [VICTIM]


async def test_the_connection_of_an_expired_broker_stays_open_while_a_request_of_it_waits() -> None:
    rig, victim = await a_rig_with_a_victim()
    assert victim.protocol is not None
    begin_storm(rig)
    register_victim(victim, 2, is_long=True)
    key = next(iter(victim.protocol.heartbeats())).lease_key
    rig.connections.broker_expired(victim.protocol.connection_id, key)
    assert not victim.is_closing()
    await work_off(rig, victim)
    victim.deliver(a_heartbeat()[:20])
    rig.connections.broker_expired(victim.protocol.connection_id, key)
    assert not victim.is_closing()


def test_a_tick_without_a_backlog_is_due_at_once() -> None:
    backlog, due = Backlog(), list[int]()
    backlog.when_worked_off(lambda: due.append(1))
    assert due == [1]


def test_a_tick_waits_for_peers_that_waited_before_it_and_a_second_tick_is_dropped() -> None:
    backlog, due = Backlog(), list[int]()
    first, second, later = Peer(), Peer(), Peer()
    for peer in (first, second):
        backlog.wait(peer)
    for number in (1, 2):
        backlog.when_worked_off(lambda number=number: due.append(number))  # type: ignore[misc]
    backlog.wait(later)
    backlog.worked_on(first)
    backlog.worked_on(first)
    backlog.read_again(first)
    assert due == []
    backlog.worked_on(second)
    assert due == [1]
    assert list(backlog.waiting) == [second, later]


def test_a_peer_that_is_read_again_and_sends_nothing_delays_a_tick_by_at_most_two_beats() -> None:
    backlog, due = Backlog(), list[int]()
    silent, busy = Peer(), Peer()
    for peer in (silent, busy):
        backlog.wait(peer)
    backlog.when_worked_off(lambda: due.append(1))
    backlog.read_again(silent)
    for _ in range(2):
        backlog.when_worked_off(lambda: due.append(2))
        assert due == []
    backlog.worked_on(busy)
    assert due == [1]


def test_a_tick_waits_for_a_peer_whose_request_waits_again() -> None:
    backlog, due = Backlog(), list[int]()
    peer = Peer()
    for _ in range(3):
        backlog.wait(peer)
        backlog.when_worked_off(lambda: due.append(1))
        backlog.read_again(peer)
    backlog.wait(peer)
    backlog.when_worked_off(lambda: due.append(1))
    assert due == []
