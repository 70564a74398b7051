"""Faults of the network and of those who use the servers, and processes that should not be there."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.simulation.fleet import Death
from tests.simulation.models.kafka_model import EVENTS
from tests.simulation.part_faults import Begin, End
from tests.simulation.remoting_peer import GET_ROUTE, Peer, PeerClosed, connect
from tests.simulation.runtime.process import MS, SECOND

if TYPE_CHECKING:
    from tests.simulation.faults import Faults


def _network_cut(faults: "Faults") -> End | None:
    network, server = faults.world.network, faults.server().machine.host
    hosts = [life.host for slot in faults.brokers() if (life := faults.fleet.now.get(slot.number)) is not None]
    for host in hosts:
        network.separate(host, server)

    def end() -> None:
        for host in hosts:
            network.join(host, server)

    return end


def _network_slow(faults: "Faults") -> End | None:
    network, server = faults.world.network, faults.server().machine.host
    hosts = [life.host for slot in faults.brokers() if (life := faults.fleet.now.get(slot.number)) is not None]
    pairs = [(host, server) for host in hosts]
    for pair in pairs:
        network.delays[pair] = faults.draws.choice((200, 2_000, 8_000)) * MS

    def end() -> None:
        for pair in pairs:
            network.delays.pop(pair, None)

    return end


def _connections_reset(faults: "Faults") -> End | None:
    """A firewall between brokers and a server resets their connections."""
    network, server = faults.world.network, faults.server().machine.host
    hosts = {life.host for slot in faults.brokers() if (life := faults.fleet.now.get(slot.number)) is not None}
    for end in [end for end in network.ends if end.host == server and end.other.host in hosts]:
        end._receive_reset()
        end.other._receive_reset()
    return lambda: None


def _brokers_die(faults: "Faults") -> End | None:
    slots = [slot for slot in faults.brokers() if faults.fleet.now[slot.number].is_alive]
    if not slots:
        return None
    death = faults.draws.choice(list(Death))
    for slot in slots:
        faults.fleet.now[slot.number].die(death)
    is_same = faults.draws.random() < 0.5

    def end() -> None:
        for slot in slots:
            if not faults.fleet.now[slot.number].is_alive:
                faults.fleet.begin(slot, is_same_address=is_same)

    return end


def _brokers_restart(faults: "Faults") -> End | None:
    """Brokers are replaced at once, some with new addresses; the old connections may still be open."""
    for slot in faults.brokers():
        life = faults.fleet.now[slot.number]
        if life.is_alive:
            life.die(faults.draws.choice(list(Death)))
            faults.fleet.begin(slot, is_same_address=faults.draws.random() < 0.5)
    return lambda: None


def _brokers_stall(faults: "Faults") -> End | None:
    lives = [life for slot in faults.brokers() if (life := faults.fleet.now[slot.number]).is_alive]
    for life in lives:
        life.is_mute = True

    def end() -> None:
        for life in lives:
            life.is_mute = False

    return end


def _registrations_take_long(faults: "Faults") -> End | None:
    """Decoding a large registration takes seconds, as on a machine without a free processor; all brokers restart."""
    world = faults.world
    world.decode_times[b""] = faults.draws.choice((2, 5, 12)) * SECOND
    for slot in faults.fleet.slots:
        life = faults.fleet.now[slot.number]
        if life.is_alive and slot.padding:
            life.die(Death.CLOSES)
            faults.fleet.begin(slot, is_same_address=True)
    return lambda: world.decode_times.update({b"": 0})


def _same_id(faults: "Faults") -> End | None:
    """A server is cloned: another one with its server_id starts on another machine."""
    world = faults.world
    if world.guests:
        return None
    guest = world.add_guest("clone", faults.draws.choice(world.servers).name, {})
    return guest.crash


def _stand_by(faults: "Faults") -> End | None:
    """A second job with an older configuration starts on another machine."""
    world = faults.world
    if world.guests:
        return None
    guest = world.add_guest("stand-by", "job", {"liveness.default_timeout_ms": str(world.plan.older_timeout_ms)})
    return guest.crash


def _strangers(faults: "Faults") -> End | None:
    """Strangers open connections and send beginnings of requests, until the server closes some."""
    world, part = faults.world, faults.server()
    open_ends: list[Peer] = []

    async def come() -> None:
        for _ in range(40):
            try:
                address = (part.machine.host, 9876)
                peer = await connect(world.network, faults.fleet.process, "10.3.0.1", address)
            except OSError:
                return
            open_ends.append(peer)
            assert peer.end is not None
            peer.end.write(b"\x00\x00\xff\xff" + bytes(faults.draws.randrange(16_000)))

    faults.fleet.loop.create_task(come())

    def end() -> None:
        for peer in open_ends:
            peer.close()

    return end


def _signing_clients(faults: "Faults") -> End | None:
    """A client signs its route queries, so that each one differs; meanwhile another client repeats its own query."""
    world, part = faults.world, faults.server()
    topics = [slot.topics[0] for slot in faults.fleet.slots]

    async def ask() -> None:
        peer = await connect(world.network, faults.fleet.process, "10.3.0.2", (part.machine.host, 9876))
        try:
            for number in range(100):
                if number % 10 == 0:
                    await faults.clients.repeat(part, peer, topics[0])
                signature = f"{faults.draws.getrandbits(160):040x}"
                fields = {"topic": topics[number % len(topics)], "AccessKey": "client", "Signature": signature}
                await peer.ask(GET_ROUTE, fields)
        finally:
            peer.close()

    async def come() -> None:
        with suppress(OSError, PeerClosed, TimeoutError):
            await ask()

    faults.fleet.loop.create_task(come())
    return lambda: None


def _bad_records(faults: "Faults") -> End | None:
    kafka = faults.world.kafka
    for value in _bad_values():
        partition = faults.draws.randrange(faults.world.plan.partitions)
        if kafka.is_available(EVENTS, partition):
            kafka.append(EVENTS, partition, None, value, -1, next(faults._numbers))
    return lambda: None


def _bad_values() -> Iterator[bytes]:
    yield from (b"", b"no JSON", b"[]", b"{}", b'{"schema_version": 99, "kind": "tick"}', b"\xff\xfe", b'{"kind": 5}')


#: Kind → how it begins.
PEER_FAULTS: Final[dict[str, Begin]] = {
    "network cut": _network_cut,
    "network slow": _network_slow,
    "connections reset": _connections_reset,
    "brokers die": _brokers_die,
    "brokers restart": _brokers_restart,
    "brokers stall": _brokers_stall,
    "registrations take long": _registrations_take_long,
    "server with the same id": _same_id,
    "second job": _stand_by,
    "strangers": _strangers,
    "signing clients": _signing_clients,
    "unreadable records": _bad_records,
}
