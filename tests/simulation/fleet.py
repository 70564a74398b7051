"""The brokers of a simulation, and what is true about them.

A ``Life`` is one process of a broker, from its start to its death. It knows when it was alive, and when which server
acknowledged a sign of life. The checks compare this truth with the servers, the log and the tables.
"""

import asyncio
import json
import zlib
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from namesrv_stream.route.model import LeaseKey, LiveKey
from tests.simulation.remoting_peer import (
    BROKER_HEARTBEAT,
    QUERY_DATA_VERSION,
    REGISTER_BROKER,
    SUCCESS,
    UNREGISTER_BROKER,
    Peer,
    PeerClosed,
    connect,
)
from tests.simulation.runtime.loop import SimLoop
from tests.simulation.runtime.process import SECOND, Machine, Process
from tests.simulation.world import Part, World

_PORT: Final = 9876
_BACK_OFF_S: Final = 1.0
#: Slots from this number on have one host, and differ in their ports.
CROWD: Final = 40_000


class Kind(Enum):
    """How a broker shows that it is alive."""

    REGISTERS = "registers again every 10 to 30 s, as all brokers do"
    BEATS = "sends heartbeats (904) every 1 to 3 s as well, with a short timeout"
    ASKS = "asks before each registration whether its data is known (322)"


class Death(Enum):
    SILENT = "stops, and its connections stay open"
    CLOSES = "its connections close"
    RESETS = "its connections are reset"
    UNREGISTERS = "unregisters"


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a broker, which lives there again and again."""

    number: int
    cluster: str
    broker_name: str
    broker_id: int
    kind: Kind
    timeout_ms: int | None
    interval_s: float
    topics: tuple[str, ...]
    padding: int  # bytes by which its registrations are longer
    default_timeout_ms: int
    flood: int = 0  # registrations that it sends to each server without a pause, each with other content

    @property
    def host(self) -> str:
        number = min(self.number, CROWD)
        return f"10.1.{number // 200}.{number % 200 + 1}"

    @property
    def known_timeout_ms(self) -> int:
        return self.timeout_ms or self.default_timeout_ms


@dataclass(slots=True, eq=False)
class LinkTruth:
    """What a broker knows about its connection to one server.

    Attributes:
        acked: Times of sending of the signs of life that the server has acknowledged.
        arrived: When these signs of life reached the server.
        is_registered: Whether the server has acknowledged a registration over the present connection.
        epoch: Start of the server's process that acknowledged it.
        unregistered_at: When the server acknowledged the unregistration.
    """

    acked: list[int] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    is_registered: bool = False
    registered_at: int = 0
    epoch: int = 0
    unregistered_at: int | None = None


class Life:
    """One process of a broker."""

    def __init__(self, fleet: "Fleet", slot: Slot, number: int, port: int) -> None:
        self.slot, self.number, self.host = slot, number, slot.host
        self.addr = f"{self.host}:{port}"
        self.key = LeaseKey(slot.broker_name, LiveKey(slot.cluster, self.addr))
        self.began = fleet.world.scheduler.now
        self.ended: int | None = None
        self.death: Death | None = None
        self.links: dict[str, LinkTruth] = {part.name: LinkTruth() for part in fleet.world.servers}
        self.peers: dict[str, Peer] = {}
        self.is_evident = False  # all servers see its death at once
        self.is_mute = False  # a stalled process: it sends nothing
        self._fleet = fleet
        self._tasks: list[asyncio.Task[None]] = []
        self._fields = {
            "brokerName": slot.broker_name,
            "brokerAddr": self.addr,
            "clusterName": slot.cluster,
            "brokerId": str(slot.broker_id),
        }
        self._body = _body(slot)

    @property
    def is_alive(self) -> bool:
        return self.ended is None

    def last_ack(self, server: str) -> int | None:
        acked = self.links[server].acked
        return acked[-1] if acked else None

    def acked_between(self, server: str, begin: int, end: int) -> bool:
        """Return whether a sign of life that a server has acknowledged was sent and received between two times."""
        link = self.links[server]
        place = bisect_left(link.acked, begin)
        return place < len(link.acked) and link.arrived[place] <= end

    def is_connected(self, server: str) -> bool:
        """Whether both ends of the connection to a server are open."""
        peer = self.peers.get(server)
        return peer is not None and peer.end is not None and not peer.end.is_closed and not peer.end.other.is_closed

    # ---- what it does ----

    def connect_to_all(self) -> None:
        self._tasks = [self._fleet.loop.create_task(self._run(part)) for part in self._fleet.world.servers]

    async def _run(self, part: Part) -> None:
        fleet, link = self._fleet, self.links[part.name]
        await asyncio.sleep(fleet.random.random() * 0.5)
        while True:
            with suppress(OSError, PeerClosed, TimeoutError):
                await self._stay(part, link)
            link.is_registered = False
            peer = self.peers.pop(part.name, None)
            if peer is not None:
                peer.close()
            await asyncio.sleep(_BACK_OFF_S * fleet.world.plan.scale * (0.5 + fleet.random.random()))

    async def _stay(self, part: Part, link: LinkTruth) -> None:
        world, slot = self._fleet.world, self.slot

        def lost() -> None:
            link.is_registered = False

        peer = self.peers[part.name] = await connect(
            world.network, self._fleet.process, self.host, (part.machine.host, _PORT), lost
        )
        next_registration = 0
        while True:
            if self.is_mute:
                await asyncio.sleep(0.5 * world.plan.scale)
                continue
            now = world.scheduler.now
            await self.show(peer, part, registers=now >= next_registration)
            if now >= next_registration:
                next_registration = now + round(slot.interval_s * SECOND)
            if len(link.acked) < slot.flood:
                next_registration = 0
                continue
            beat_s = min(slot.interval_s, slot.known_timeout_ms / 4_000) if slot.kind is Kind.BEATS else slot.interval_s
            await asyncio.sleep(beat_s * (0.7 + 0.3 * self._fleet.random.random()))

    async def show(self, peer: Peer, part: Part, *, registers: bool) -> None:
        """Send a sign of life to a server, and remember that it was acknowledged. Raises PeerClosed if it was not."""
        scheduler, link = self._fleet.world.scheduler, self.links[part.name]
        sent, since = scheduler.now, part.since
        if registers:
            await self._register(peer, part)
        else:
            answer = await peer.ask(BROKER_HEARTBEAT, self._fields)
            self._require(answer.code)
        if not link.is_registered:
            link.is_registered, link.registered_at = True, scheduler.now
        link.epoch = since
        link.acked.append(sent)
        link.arrived.append(scheduler.now if peer.end is None else peer.end.sent_until)

    async def _register(self, peer: Peer, part: Part) -> None:
        slot, body = self.slot, self._body
        if slot.flood:
            body = _body(slot, 1 + len(self.links[part.name].acked))
        if slot.kind is Kind.ASKS and self.links[part.name].is_registered:
            version = {"counter": 1, "stateVersion": 0, "timestamp": 1_000}
            await peer.ask(QUERY_DATA_VERSION, self._fields, json.dumps(version).encode(), 10.0)
        fields = self._fields | {"haServerAddr": self.addr, "enableActingMaster": "false", "compressed": "false"}
        fields["bodyCrc32"] = str(zlib.crc32(body) & 0x7FFFFFFF)
        if slot.timeout_ms is not None:
            fields["heartbeatTimeoutMillis"] = str(slot.timeout_ms)
        answer = await peer.ask(REGISTER_BROKER, fields, body, 24.0)
        self._require(answer.code)

    def _require(self, code: int) -> None:
        if code != SUCCESS:
            self._fleet.refused += 1
            raise PeerClosed

    def die(self, death: Death) -> None:
        """End the process."""
        if not self.is_alive:
            return
        self.death, self.ended = death, self._fleet.world.scheduler.now
        calm = self._fleet.world.calm_for(self.slot.broker_name)
        self.is_evident = (
            death is not Death.SILENT
            and calm is not None
            and calm + self._fleet.world.slack <= self.ended
            and all(self.links[part.name].epoch == part.since for part in self._fleet.world.servers)
        )
        self._fleet.world.scheduler.trace(f"broker {self.slot.number} dies {death.name}")
        for task in self._tasks:
            task.cancel()
        for link in self.links.values():
            link.is_registered = False
        peers, self.peers = dict(self.peers), {}
        for name, peer in peers.items():
            if death is Death.CLOSES:
                peer.close()
            elif death is Death.RESETS and peer.end is not None:
                peer.end.abort()
            elif death is Death.UNREGISTERS and peer.is_open:
                self._fleet.loop.create_task(self._unregister(peer, self.links[name]))

    async def _unregister(self, peer: Peer, link: LinkTruth) -> None:
        try:
            answer = await peer.ask(UNREGISTER_BROKER, self._fields, timeout_s=3.0)
            if answer.code == SUCCESS:
                link.unregistered_at = self._fleet.world.scheduler.now
        except (PeerClosed, TimeoutError):
            pass
        finally:
            peer.close()


class Fleet:
    """All brokers.

    Attributes:
        lives: All processes, the dead ones too, in order of their start.
        refused: Number of requests that were refused.
    """

    def __init__(self, world: World, slots: list[Slot]) -> None:
        self.world, self.slots = world, slots
        self.random = world.scheduler.random
        self.process = Process(world.scheduler, "fleet", Machine(world.scheduler, "fleet", "10.1.0.0"))
        self.loop = SimLoop(world.scheduler, self.process, world.network)
        self.lives: list[Life] = []
        self.now: dict[int, Life] = {}
        self._of_key: dict[LeaseKey, list[Life]] = {}
        self.refused = 0
        self._ports: dict[int, int] = {}

    def begin(self, slot: Slot, *, is_same_address: bool) -> Life:
        """Start a process of a broker, at the address of the one before or at a new one."""
        life = self.add(slot, is_same_address=is_same_address)
        life.connect_to_all()
        return life

    def add(self, slot: Slot, *, is_same_address: bool) -> Life:
        """Add a process of a broker that sends nothing by itself."""
        port = self._ports.get(slot.number, 10_910 + max(0, slot.number - CROWD))
        if not is_same_address:
            port += 1
        self._ports[slot.number] = port
        life = Life(self, slot, len(self.lives), port)
        self.world.scheduler.trace(f"broker {slot.number} starts {life.addr}")
        self.lives.append(life)
        self._of_key.setdefault(life.key, []).append(life)
        self.now[slot.number] = life
        return life

    def of_key(self, key: LeaseKey) -> list[Life]:
        return self._of_key.get(key, [])


def _body(slot: Slot, counter: int = 1) -> bytes:
    topics = {topic: _topic(topic, 8 + (counter - 1) % 2) for topic in slot.topics}
    for number in range(slot.padding // 200):
        name = f"padding-of-{slot.broker_name}-{number:04d}"
        topics[name] = _topic(name)
    wrapper = {
        "dataVersion": {"counter": counter, "stateVersion": 0, "timestamp": 1_000},
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 1},
        "topicConfigTable": topics,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def _topic(name: str, queues: int = 8) -> dict[str, object]:
    return {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
