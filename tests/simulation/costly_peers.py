"""Peers that cost much: a large broker that flaps, a name with 1,000 addresses, ever new names, a flood of changes.

They are brokers of the fleet, so all checks apply to them as well. These faults disturb nothing: other brokers must not
notice them.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.fleet import CROWD, Death, Kind, Life, Slot
from tests.simulation.part_faults import Begin, End
from tests.simulation.remoting_peer import PeerClosed, connect
from tests.simulation.runtime.process import SECOND

if TYPE_CHECKING:
    from tests.simulation.faults import Faults

#: Numbers of their slots; ``_CHURN`` is the first one of the new names.
_FLAPPING: Final = 900
_FLOODING: Final = 901
_CROWDED: Final = 902
_CHURN: Final = 1_000
_LARGE: Final = 20_000  # bytes, which are 100 topics


def _slot(faults: "Faults", number: int, name: str, broker_id: int = 0, padding: int = 0, flood: int = 0) -> Slot:
    """Return a place for a broker, in the cluster of others or in one of its own."""
    world, topics = faults.world, (f"topic-of-{name}", "topic-of-all")
    cluster = faults.fleet.slots[0].cluster if world.seed % 2 else "cluster-of-peers"
    shows = (Kind.REGISTERS, 30_000 * world.plan.scale, 10.0 * world.plan.scale)
    return Slot(number, cluster, name, broker_id, *shows, topics, padding, world.plan.default_timeout_ms, flood)


def _until_end(faults: "Faults", coming: Coroutine[Any, Any, None], lives: list[Life]) -> End:
    """Let brokers come until the fault ends, when those that are there go."""
    task = faults.fleet.loop.create_task(coming)

    def end() -> None:
        task.cancel()
        death = faults.draws.choice((Death.SILENT, Death.CLOSES, Death.RESETS))
        for life in lives:
            life.die(death)

    return end


def _flap(faults: "Faults") -> End | None:
    """A large broker closes its connections again and again, and registers in full each time."""
    fleet, lives = faults.fleet, list[Life]()
    slot = _slot(faults, _FLAPPING, "flapping", padding=_LARGE)

    async def come() -> None:
        for _ in range(20):
            lives[:] = [fleet.begin(slot, is_same_address=True)]
            await asyncio.sleep((1 + faults.draws.random()) * faults.world.plan.scale)
            lives[0].die(faults.draws.choice((Death.CLOSES, Death.RESETS)))
        lives[:] = [fleet.begin(slot, is_same_address=True)]

    return _until_end(faults, come(), lives)


def _many_addresses(faults: "Faults") -> End | None:
    """A broker name registers from 1,000 addresses, of which it may have 100."""
    if CROWD + 1 in faults.fleet.now:
        return None  # once in a run, because it costs a second
    world, fleet, part = faults.world, faults.fleet, faults.server()
    lives = [fleet.begin(_slot(faults, _CROWDED, "crowded"), is_same_address=True)]

    def lost() -> None:
        for life in lives[1:]:
            life.links[part.name].is_registered = False

    async def come() -> None:
        await asyncio.sleep(1)
        address = (part.machine.host, 9876)
        peer = await connect(world.network, fleet.process, _slot(faults, CROWD, "crowded").host, address, lost)
        for broker_id in range(1, 1_001):
            life = fleet.add(_slot(faults, CROWD + broker_id, "crowded", broker_id), is_same_address=True)
            life.peers[part.name] = peer
            lives.append(life)
            try:
                await life.show(peer, part, registers=True)
            except PeerClosed:
                life.peers.clear()  # others use the connection
                life.die(Death.SILENT)

    async def come_once() -> None:
        with suppress(OSError, TimeoutError):
            await come()

    return _until_end(faults, come_once(), lives)


def _churn(faults: "Faults") -> End | None:
    """Brokers with ever new names come and go."""
    fleet, lives = faults.fleet, list[Life]()

    async def come() -> None:
        for _ in range(60):
            number = _CHURN + len(fleet.lives)
            lives[:] = [fleet.begin(_slot(faults, number, f"new-{number}"), is_same_address=True)]
            await asyncio.sleep((0.7 + faults.draws.random()) * faults.world.plan.scale)
            lives[0].die(faults.draws.choice(list(Death)))

    return _until_end(faults, come(), lives)


def _flood(faults: "Faults") -> End | None:
    """A broker sends large registrations without a pause, each with other content; decoding one takes a second."""
    times, count = faults.world.decode_times, max(5, 200 // faults.world.plan.scale)
    slot = _slot(faults, _FLOODING, "flooding", padding=_LARGE, flood=count)
    times[b"padding-of-flooding"] = SECOND
    life = faults.fleet.begin(slot, is_same_address=True)

    def end() -> None:
        del times[b"padding-of-flooding"]
        life.die(faults.draws.choice(list(Death)))

    return end


#: Kind → how it begins.
COSTLY_PEERS: Final[dict[str, Begin]] = {
    "a large broker flaps": _flap,
    "a name with many addresses": _many_addresses,
    "ever new names": _churn,
    "flood of registrations": _flood,
}
