"""Faults of the parts: of servers, the job, Kafka, the disk of the tables and clocks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from namesrv_stream.table_errors import TableDamaged
from tests.simulation.models.kafka_model import EVENTS
from tests.simulation.runtime.disk import Folders
from tests.simulation.runtime.process import MS, SECOND, Machine
from tests.simulation.world import TABLES, Part

if TYPE_CHECKING:
    from tests.simulation.faults import Faults

#: Ends a fault.
End = Callable[[], None]
#: Begins a fault; None if it is impossible now.
Begin = Callable[["Faults"], End | None]
_DAY: Final = 86_400 * SECOND


def _crash(part: Part, *, power: bool = False) -> End | None:
    if not part.process.is_alive or not part.is_wanted:
        return None
    part.crash(power=power)
    return part.start


def _crash_server(faults: "Faults") -> End | None:
    return _crash(faults.server())


def _server_loses_power(faults: "Faults") -> End | None:
    return _crash(faults.server(), power=True)


def _crash_job(faults: "Faults") -> End | None:
    return _crash(faults.world.job)


def _power_cut(faults: "Faults") -> End | None:
    """The machine of the job and of the tables loses its power."""
    world = faults.world
    end = _crash(world.job, power=True)
    if end is not None:
        world.disk.lose_power(faults.draws)
    return end


def _crash_during_write(faults: "Faults") -> End | None:
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


def _restart_server(faults: "Faults") -> End | None:
    part = faults.server()
    if not part.process.is_alive or not part.is_wanted or part.process.is_paused:
        return None
    part.stop()

    def end() -> None:
        if part.process.is_alive:
            part.crash()
        part.start()

    return end


def _pause(faults: "Faults", part: Part) -> End | None:
    world, process = faults.world, part.process
    if not process.is_alive or process.is_paused:
        return None
    process.pause()
    begin = world.scheduler.now

    def end() -> None:
        process.resume()
        world.stalls.append((part.name, begin, world.scheduler.now))

    return end


def _pause_server(faults: "Faults") -> End | None:
    return _pause(faults, faults.server())


def _pause_job(faults: "Faults") -> End | None:
    return _pause(faults, faults.world.job)


def _kafka_away(faults: "Faults") -> End | None:
    faults.world.kafka.stop()
    return faults.world.kafka.start


def _no_leader(faults: "Faults") -> End | None:
    kafka = faults.world.kafka
    if EVENTS not in kafka.topics:
        return None
    faults.leaderless = faults.draws.randrange(len(kafka.topics[EVENTS].logs))
    log = kafka.log(faults.leaderless)
    log.has_leader = False
    return lambda: setattr(log, "has_leader", True)


def _records_lost(faults: "Faults") -> End | None:
    """An unclean election of a leader: Kafka loses records that it has acknowledged."""
    kafka = faults.world.kafka
    if EVENTS not in kafka.topics:
        return None
    partition = faults.draws.randrange(faults.world.plan.partitions)
    kafka.lose(partition, faults.draws.choice((1, 3, 30, 300)))
    kafka.stop()
    return kafka.start


def _topic_recreated(faults: "Faults") -> End | None:
    """Kafka's volume is lost, and the topic is made again while Kafka is away."""
    kafka = faults.world.kafka
    if EVENTS not in kafka.topics:
        return None
    kafka.recreate()
    kafka.stop()
    return kafka.start


def _kafka_slow(faults: "Faults") -> End | None:
    kafka = faults.world.kafka
    before, kafka.delay = kafka.delay, faults.draws.choice((50, 400, 1_500, 4_000)) * MS
    kafka.slowest = max(kafka.slowest, kafka.delay)
    return lambda: setattr(kafka, "delay", before)


def _acks_lost(faults: "Faults") -> End | None:
    faults.world.kafka.unacknowledged = 0.3
    return lambda: setattr(faults.world.kafka, "unacknowledged", 0.0)


def _clock_jump(faults: "Faults") -> End | None:
    world, machine = faults.world, _any_machine(faults)
    by_ms = faults.draws.choice((-300_000, -20_000, -700, 700, 5_000, 300_000))

    def jump(by_ms: int) -> None:
        machine.ahead_ms += by_ms
        if machine is world.kafka.machine:
            world.kafka.jumps.append(world.scheduler.now)

    jump(by_ms)
    return lambda: jump(-by_ms)


def _any_machine(faults: "Faults") -> Machine:
    world = faults.world
    return faults.draws.choice([world.kafka.machine, *(part.machine for part in world.parts)])


def _disk_full(faults: "Faults") -> End | None:
    faults.world.disk.is_full = True
    return lambda: setattr(faults.world.disk, "is_full", False)


def _disk_slow(faults: "Faults") -> End | None:
    faults.world.disk.slowness = faults.draws.choice((5, 100, 2_000)) * MS
    return lambda: setattr(faults.world.disk, "slowness", 0)


def _file_damaged(faults: "Faults") -> End | None:
    """The disk loses a part of a table's newest commits or of its newest checkpoint while the job stands."""
    world, job = faults.world, faults.world.job
    if not job.process.is_alive or not job.is_wanted or EVENTS not in world.kafka.topics:
        return None
    if any(log.first for log in world.kafka.topics[EVENTS].logs):
        return None  # the log must have what the tables lose
    job.crash()
    table = faults.draws.choice(("route_changes", "route_state"))
    log = f"{TABLES}/{table}/_delta_log"
    names = sorted(name for name in world.disk.folder(log) or {} if not name.startswith("."))
    for name in faults.draws.sample(names[-4:], min(2, len(names))):
        world.disk.damage(f"{log}/{name}", faults.draws)
    world.tables_go_back()
    return job.start


def _slow_job(faults: "Faults") -> End | None:
    spark = faults.world.spark
    before, spark.batch_delay = spark.batch_delay, (2_000 * MS, 12_000 * MS)
    return lambda: setattr(spark, "batch_delay", before)


def _retention(faults: "Faults") -> End | None:
    """Kafka removes old records that the tables cover.

    A backup must not be older than that, and after damage the job must have folded everything again.
    """
    world = faults.world
    if world.backup is not None:
        return None
    try:
        covered = world.covered_by_tables()
    except TableDamaged:
        return None
    if any(covered.get(partition, 0) < end for partition, end in world.restored_at.items()):
        return None
    for partition, offset in covered.items():
        world.kafka.remove_until(partition, offset)
    return lambda: None


def _restore(faults: "Faults") -> End | None:
    """Somebody restores the tables, or only ``route_changes``, from a backup; the job may run meanwhile."""
    world, job = faults.world, faults.world.job
    if not job.process.is_alive or not job.is_wanted or world.backup is None:
        return None
    # A job that runs ends with exit code 2 if its table is gone, as it is if the backup is older than the table.
    if faults.draws.random() < 0.7 or not _has_table(world.backup):
        job.crash()
    which = faults.draws.choice((TABLES, f"{TABLES}/route_changes"))
    if world.scheduler.now > _DAY:
        which = TABLES  # the job keeps older versions of route_state for a day
    world.tables_go_back()
    world.restores.append(world.scheduler.now)
    world.disk.restore(which, {path: files for path, files in world.backup.items() if path.startswith(which)})
    return job.start


def _has_table(backup: Folders) -> bool:
    return any(name.endswith(".json") for name in backup.get(f"{TABLES}/route_changes/_delta_log", {}))


def _back_up(faults: "Faults") -> End | None:
    faults.world.backup = faults.world.disk.copy_of(TABLES)
    return lambda: None


#: Faults after which the job may need an operator: each occurs once, at the end of a run.
LAST_FAULTS: Final[dict[str, Begin]] = {
    "acknowledged records lost": _records_lost,
    "topic recreated": _topic_recreated,
}
#: Kind → how it begins.
PART_FAULTS: Final[dict[str, Begin]] = {
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
    "clock jump": _clock_jump,
    "disk full": _disk_full,
    "disk slow": _disk_slow,
    "records removed by retention": _retention,
    "files damaged": _file_damaged,
    "tables backed up": _back_up,
    "tables restored": _restore,
}
