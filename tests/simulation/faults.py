"""The faults of a simulation. Each has a beginning and an end; between them the installation is *disturbed*."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from tests.simulation.fleet import Death, Fleet, Slot
from tests.simulation.kafka_model import EVENTS
from tests.simulation.remoting_peer import Peer, connect
from tests.simulation.scheduler import MS, SECOND, Machine
from tests.simulation.world import Part, World

#: Ends a fault.
End = Callable[[], None]
#: Begins a fault; None if it is impossible now.
Begin = Callable[["Faults"], End | None]

_TABLES: Final = "/simulation/tables"


class Faults:
    """Injects faults at random moments.

    Attributes:
        counts: Number of injected faults by kind.
        active: Kinds of the faults that have not ended.
    """

    def __init__(self, world: World, fleet: Fleet, kinds: list[str]) -> None:
        self.world, self.fleet = world, fleet
        self.draws: random.Random = world.scheduler.random
        self.counts: Counter[str] = Counter()
        self.leaderless = 0  # the partition that had no leader last
        self._kinds = kinds
        self._ends: dict[int, tuple[str, End]] = {}
        self._numbers = iter(range(1 << 30))

    @property
    def active(self) -> list[str]:
        return [kind for kind, _ in self._ends.values()]

    def schedule(self, begin: int, end: int, mean_interval: int) -> None:
        """Inject faults between two times."""
        at = begin
        while True:
            at += round(self.draws.expovariate(1 / mean_interval))
            if at >= end:
                return
            self.world.scheduler.at(at, None, self._inject_any)

    def _inject_any(self) -> None:
        self.inject(self.draws.choice(self._kinds))

    def inject(self, kind: str) -> None:
        if kind in self.active:
            return
        end = (KINDS | LAST)[kind](self)
        if end is None:
            return
        self.world.scheduler.trace(f"fault {kind}")
        self.counts[kind] += 1
        number = next(self._numbers)
        self._ends[number] = (kind, end)
        self._disturb(kind)
        self.world.scheduler.after(self._duration(), lambda: self._end(number))

    def _duration(self) -> int:
        """Most faults are short; some are longer than every timeout."""
        return round(self.draws.choice((0.3, 2, 6, 20, 60, 150)) * (0.5 + self.draws.random()) * SECOND)

    def _end(self, number: int) -> None:
        found = self._ends.pop(number, None)
        if found is not None:
            self.world.scheduler.trace(f"fault {found[0]} ends")
            found[1]()
            self._disturb(found[0])
            if all(kind == "partition without leader" for kind in self.active):
                self.world.calm(self._leaderless() if self.active else None)

    def _disturb(self, kind: str) -> None:
        """A partition without a leader disturbs no other one."""
        is_one = kind == "partition without leader"
        self.world.disturbed(self._leaderless() if is_one else None)

    def _leaderless(self) -> int:
        return self.leaderless

    def end_all(self) -> None:
        for number in list(self._ends):
            self._end(number)

    # ---- draws ----

    def server(self) -> Part:
        return self.draws.choice(self.world.servers)

    def brokers(self) -> list[Slot]:
        """Return one broker, a part of them, those of a cluster, or all."""
        slots = self.fleet.slots
        how = self.draws.randrange(4)
        if how == 0:
            return [self.draws.choice(slots)]
        if how == 1:
            return [slot for slot in slots if self.draws.random() < 0.3]
        if how == 2:
            cluster = self.draws.choice(slots).cluster
            return [slot for slot in slots if slot.cluster == cluster]
        return list(slots)


def _crash(part: Part, *, power: bool = False) -> End | None:
    if not part.process.is_alive or not part.is_wanted:
        return None
    part.crash(power=power)
    return part.start


def _crash_server(faults: Faults) -> End | None:
    return _crash(faults.server())


def _server_loses_power(faults: Faults) -> End | None:
    return _crash(faults.server(), power=True)


def _crash_job(faults: Faults) -> End | None:
    return _crash(faults.world.job)


def _power_cut(faults: Faults) -> End | None:
    """The machine of the job and of the tables loses its power."""
    world = faults.world
    end = _crash(world.job, power=True)
    if end is not None:
        world.disk.lose_power(faults.draws)
    return end


def _crash_during_write(faults: Faults) -> End | None:
    """The job is killed at one of its next changes of the disk; sometimes its machine loses its power at once."""
    world, job = faults.world, faults.world.job
    if not job.process.is_alive or not job.is_wanted:
        return None
    countdown, is_power = faults.draws.randrange(1, 40), faults.draws.random() < 0.5
    process = job.process

    def changed() -> None:
        nonlocal countdown
        if world.scheduler.current is not process:
            return
        countdown -= 1
        if countdown == 0:
            world.disk.on_change = lambda: None
            job.is_wanted = False
            process.is_alive = False  # its threads end at their next step
            world.scheduler.soon(None, die)

    def die() -> None:
        process.is_alive = True
        job.crash(power=is_power)
        if is_power:
            world.disk.lose_power(faults.draws)

    def end() -> None:
        world.disk.on_change = lambda: None
        job.start()

    world.disk.on_change = changed
    return end


def _restart_server(faults: Faults) -> End | None:
    part = faults.server()
    if not part.process.is_alive or not part.is_wanted or part.process.is_paused:
        return None
    part.stop()

    def end() -> None:
        if part.process.is_alive:
            part.crash()
        part.start()

    return end


def _pause(part: Part) -> End | None:
    process = part.process
    if not process.is_alive or process.is_paused:
        return None
    process.pause()
    return process.resume


def _pause_server(faults: Faults) -> End | None:
    return _pause(faults.server())


def _pause_job(faults: Faults) -> End | None:
    return _pause(faults.world.job)


def _kafka_away(faults: Faults) -> End | None:
    faults.world.kafka.stop()
    return faults.world.kafka.start


def _no_leader(faults: Faults) -> End | None:
    kafka = faults.world.kafka
    if EVENTS not in kafka.topics:
        return None
    faults.leaderless = faults.draws.randrange(len(kafka.topics[EVENTS].logs))
    log = kafka.log(faults.leaderless)
    log.has_leader = False
    return lambda: setattr(log, "has_leader", True)


def _records_lost(faults: Faults) -> End | None:
    """An unclean election of a leader: Kafka loses records that it has acknowledged."""
    kafka = faults.world.kafka
    if EVENTS not in kafka.topics:
        return None
    partition = faults.draws.randrange(faults.world.plan.partitions)
    kafka.lose(partition, faults.draws.choice((1, 3, 30, 300)))
    kafka.stop()
    return kafka.start


def _topic_recreated(faults: Faults) -> End | None:
    """Kafka's volume is lost, and the topic is made again while Kafka is away."""
    kafka = faults.world.kafka
    if EVENTS not in kafka.topics:
        return None
    kafka.recreate()
    kafka.stop()
    return kafka.start


def _kafka_slow(faults: Faults) -> End | None:
    kafka = faults.world.kafka
    before, kafka.delay = kafka.delay, faults.draws.choice((50, 400, 1_500, 4_000)) * MS
    return lambda: setattr(kafka, "delay", before)


def _acks_lost(faults: Faults) -> End | None:
    faults.world.kafka.unacknowledged = 0.3
    return lambda: setattr(faults.world.kafka, "unacknowledged", 0.0)


def _network_cut(faults: Faults) -> End | None:
    network, server = faults.world.network, faults.server().machine.host
    hosts = [life.host for slot in faults.brokers() if (life := faults.fleet.now.get(slot.number)) is not None]
    for host in hosts:
        network.separate(host, server)

    def end() -> None:
        for host in hosts:
            network.join(host, server)

    return end


def _network_slow(faults: Faults) -> End | None:
    network, server = faults.world.network, faults.server().machine.host
    hosts = [life.host for slot in faults.brokers() if (life := faults.fleet.now.get(slot.number)) is not None]
    pairs = [(host, server) for host in hosts]
    for pair in pairs:
        network.delays[pair] = faults.draws.choice((200, 2_000, 8_000)) * MS

    def end() -> None:
        for pair in pairs:
            network.delays.pop(pair, None)

    return end


def _connections_reset(faults: Faults) -> End | None:
    """A firewall between brokers and a server resets their connections."""
    network, server = faults.world.network, faults.server().machine.host
    hosts = {life.host for slot in faults.brokers() if (life := faults.fleet.now.get(slot.number)) is not None}
    for end in [end for end in network.ends if end.host == server and end.other.host in hosts]:
        end._receive_reset()
        end.other._receive_reset()
    return lambda: None


def _clock_jump(faults: Faults) -> End | None:
    machine = _any_machine(faults)
    by_ms = faults.draws.choice((-300_000, -20_000, -700, 700, 5_000, 300_000))
    machine.ahead_ms += by_ms

    def end() -> None:
        machine.ahead_ms -= by_ms

    return end


def _any_machine(faults: Faults) -> Machine:
    world = faults.world
    return faults.draws.choice([world.kafka.machine, *(part.machine for part in world.parts)])


def _disk_full(faults: Faults) -> End | None:
    faults.world.disk.is_full = True
    return lambda: setattr(faults.world.disk, "is_full", False)


def _slow_job(faults: Faults) -> End | None:
    spark = faults.world.spark
    before, spark.batch_delay = spark.batch_delay, (2_000 * MS, 12_000 * MS)
    return lambda: setattr(spark, "batch_delay", before)


def _brokers_die(faults: Faults) -> End | None:
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


def _brokers_restart(faults: Faults) -> End | None:
    """Brokers are replaced at once, some with new addresses; the old connections may still be open."""
    for slot in faults.brokers():
        life = faults.fleet.now[slot.number]
        if life.is_alive:
            life.die(faults.draws.choice(list(Death)))
            faults.fleet.begin(slot, is_same_address=faults.draws.random() < 0.5)
    return lambda: None


def _brokers_stall(faults: Faults) -> End | None:
    lives = [life for slot in faults.brokers() if (life := faults.fleet.now[slot.number]).is_alive]
    for life in lives:
        life.is_mute = True

    def end() -> None:
        for life in lives:
            life.is_mute = False

    return end


def _registrations_take_long(faults: Faults) -> End | None:
    """Decoding a large registration takes seconds, as on a machine without a free processor; all brokers restart."""
    world = faults.world
    before, world.decode_time = world.decode_time, faults.draws.choice((1, 2, 4)) * SECOND
    for slot in faults.fleet.slots:
        life = faults.fleet.now[slot.number]
        if life.is_alive and slot.padding:
            life.die(Death.CLOSES)
            faults.fleet.begin(slot, is_same_address=True)
    return lambda: setattr(world, "decode_time", before)


def _same_id(faults: Faults) -> End | None:
    """A server is cloned: another one with its server_id starts on another machine."""
    world = faults.world
    if world.guests:
        return None
    guest = world.add_guest("clone", faults.draws.choice(world.servers).name, {})
    return guest.crash


def _stand_by(faults: Faults) -> End | None:
    """A second job with an older configuration starts on another machine."""
    world = faults.world
    if world.guests:
        return None
    guest = world.add_guest("stand-by", "job", {"liveness.default_timeout_ms": "119999"})
    return guest.crash


def _strangers(faults: Faults) -> End | None:
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
            peer.end.write(b"\x00\x00\xff\xff" + bytes(faults.draws.randrange(3_000)))

    faults.fleet.loop.create_task(come())

    def end() -> None:
        for peer in open_ends:
            peer.close()

    return end


def _bad_records(faults: Faults) -> End | None:
    kafka = faults.world.kafka
    for value in _bad_values():
        partition = faults.draws.randrange(faults.world.plan.partitions)
        if kafka.is_available(EVENTS, partition):
            kafka.append(EVENTS, partition, None, value, -1, next(faults._numbers))
    return lambda: None


def _bad_values() -> Iterator[bytes]:
    yield from (b"", b"no JSON", b"[]", b"{}", b'{"schema_version": 99, "kind": "tick"}', b"\xff\xfe", b'{"kind": 5}')


def _retention(faults: Faults) -> End | None:
    """Kafka removes old records that the state of the fold covers. A backup must not be older than that."""
    world = faults.world
    if world.backup is not None:
        return None
    for partition, offset in world.covered_by_state().items():
        world.kafka.remove_until(partition, offset)
    return lambda: None


def _restore(faults: Faults) -> End | None:
    """Somebody restores the tables, or only ``route_changes``, from a backup while the job stands; servers go on."""
    world, job = faults.world, faults.world.job
    if not job.process.is_alive or not job.is_wanted or world.backup is None:
        return None
    job.crash()
    which = faults.draws.choice((_TABLES, f"{_TABLES}/route_changes"))
    world.disk.restore(which, {path: files for path, files in world.backup.items() if path.startswith(which)})
    return job.start


def _back_up(faults: Faults) -> End | None:
    faults.world.backup = faults.world.disk.copy_of(_TABLES)
    return lambda: None


#: Faults after which the job may need a person: they come once, at the end of a run.
LAST: Final[dict[str, Begin]] = {"acknowledged records lost": _records_lost, "topic recreated": _topic_recreated}
#: Kind → how it begins.
KINDS: Final[dict[str, Begin]] = {
    "server killed": _crash_server,
    "server's machine loses power": _server_loses_power,
    "server restarted": _restart_server,
    "server frozen": _pause_server,
    "job killed": _crash_job,
    "job killed during a write": _crash_during_write,
    "power cut of job and tables": _power_cut,
    "job frozen": _pause_job,
    "job slow": _slow_job,
    "Kafka away": _kafka_away,
    "partition without leader": _no_leader,
    "Kafka slow": _kafka_slow,
    "acknowledgements lost": _acks_lost,
    "network cut": _network_cut,
    "network slow": _network_slow,
    "connections reset": _connections_reset,
    "clock jump": _clock_jump,
    "disk full": _disk_full,
    "brokers die": _brokers_die,
    "brokers restart": _brokers_restart,
    "brokers stall": _brokers_stall,
    "registrations take long": _registrations_take_long,
    "server with the same id": _same_id,
    "second job": _stand_by,
    "strangers": _strangers,
    "unreadable records": _bad_records,
    "records removed by retention": _retention,
    "tables backed up": _back_up,
    "tables restored": _restore,
}
