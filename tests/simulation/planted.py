"""Faults planted into the product, to show that the simulation finds them: ``python -m tests.simulation.planted``.

Each one replaces a piece of source text in one function, as a small patch would. Those with a name like ``H2`` are
findings of an audit as they were before their fixes, as far as the simulated parts contain them.
"""

import argparse
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple

from tests.simulation.simulation import Outcome, Shape, simulate


class Plant(NamedTuple):
    """A planted fault.

    Attributes:
        place: Module and name of the function, below ``namesrv_stream``.
        old: Text of its source.
        new: What it is replaced by.
        faults: Kinds of faults that the runs inject; () for those that the seed draws.
    """

    name: str
    place: str
    old: str
    new: str
    faults: tuple[str, ...] = ()


_CRASHES = ("power cut of job and tables", "job killed during a write", "server killed")
_KAFKA = ("Kafka away", "Kafka slow", "acknowledgements lost")
_DEATHS = ("brokers die", "brokers restart")

PLANTS = (
    # ---- the audit's findings ----
    Plant(
        "H1 files are not synced", "tables.storage.folder:Folder._staged", "os.fsync(file.fileno())", "pass", _CRASHES
    ),
    Plant("H1 folders are not synced", "tables.storage.folder:Folder._staged", "_sync(path.parent)", "pass", _CRASHES),
    Plant(
        "H1 a new table is not synced",
        "tables.repair:create_table",
        "storage.sync([commit_name(0), LOG])",
        "pass",
        ("power cut of job and tables",),
    ),
    Plant(
        "H1 damage is not repaired",
        "tables.repair:repair_table",
        "if damage is None:",
        "if True:",
        _CRASHES,
    ),
    Plant(
        "H2 the fold starts from a state ahead of the changes",
        "streaming.route_table.fold_query:find_start_point",
        "kept = states.newest(partition, at_most=covered)",
        "kept = states.newest(partition)",
        ("tables backed up", "tables restored"),
    ),
    Plant(
        "H3 a log that lost records is accepted once it has grown",
        "kafka.log_reader:check_log",
        "if present:",
        "if False:",
        ("clock jump", "acknowledged records lost"),
    ),
    Plant(
        "H3 a log that ends too early is accepted",
        "kafka.log_reader:check_log",
        "if place.next_offset > extent.end[partition]:",
        "if False:",
        ("clock jump", "acknowledged records lost"),
    ),
    Plant(
        "H4 ticks do not wait for large requests",
        "server.gateway.gateway:Gateway.beat",
        "self.backlog.when_worked_off(self._tick)",
        "for log in self._logs: log.tick('')",
        ("registrations take long",),
    ),
    Plant(
        "M1 a recreated topic is accepted",
        "server.start.identity:LogGuard.check",
        "end = check_log(self._settings, self._folded(), [partition]).end[partition]",
        "end = check_log(self._settings, FoldedLog(), [partition]).end[partition]",
        ("clock jump", "topic recreated"),
    ),
    Plant(
        "M2 a follower does not notice that the tables were restored",
        "tables.snapshot_follower:SnapshotFollower._continues",
        "return identity.table_id == self.table_id and _is_same(identity.before, self.progress)",
        "return True",
        ("tables backed up", "tables restored"),
    ),
    Plant(
        "M3 a close by the server itself is evidence",
        "server.net.connection:RemotingConnection.connection_lost",
        "if self.has_brokers and not self._reason:",
        "if self.has_brokers:",
        ("brokers stall", "strangers"),
    ),
    Plant(
        "M4 one partition without a leader makes all blind",
        "server.gateway.gateway:Gateway.is_blind_for",
        "not log.is_connected",
        "not self.is_connected",
        ("partition without leader", "brokers die"),
    ),
    Plant(
        "M5 a second server with the same id is not refused",
        "server.start.identity:find_rival",
        "if not earlier.ticks:",
        "if True:",
        ("server with the same id",),
    ),
    Plant(
        "M6 a second job logs its settings",
        "streaming.route_table.route_job:_Job._on_batch",
        "if self._writer.has_committed and not self._has_logged_settings:",
        "if not self._has_logged_settings:",
        ("second job",),
    ),
    # ---- liveness ----
    Plant(
        "a pause of a server ages its brokers",
        "route.fold.liveness:_gap_ms",
        "return max(0, min(at_ms - previous_ms, state.settings.max_gap_ms))",
        "return max(0, at_ms - previous_ms)",
        ("server frozen", "clock jump"),
    ),
    Plant(
        "an outage of Kafka ages brokers",
        "route.fold.liveness:advance_clocks",
        "if not isinstance(event, ServerStarted | ServerResumed):",
        "if True:",
        ("Kafka away",),
    ),
    Plant(
        "any record expires brokers",
        "route.fold.liveness:advance_clocks",
        "if isinstance(event, Tick):",
        "if True:",
        ("Kafka away", "brokers restart"),
    ),
    Plant(
        "heartbeats do not renew a lease",
        "route.fold.fold_record:_renew_unchanged",
        "renew(step, key, lease, server_id, Cause.HEARD)",
        "pass",
    ),
    Plant(
        "a broker ends with its first lease",
        "route.fold.liveness:end_holder",
        "is_kept = is_vouched_for_without(step.state, lease, server_id)",
        "is_kept = False",
        ("connections reset", "network cut"),
    ),
    Plant(
        "the close of a superseded connection counts",
        "route.interpretation:refusal_of_end",
        "return superseded(origin, held) if origin.holder < held or is_later_close else None",
        "return None",
        ("network cut", "network slow", "brokers restart"),
    ),
    Plant(
        "brokers do not expire",
        "route.fold.state:FoldState.pop_expired",
        "while queue and queue[0][0] < now_ms:",
        "while False:",
        _DEATHS,
    ),
    Plant(
        "the guard holds for ever",
        "route.fold.state:FoldState.deadline_ms",
        "timeout_ms *= 1 + self.settings.guard_hold_timeouts",
        "timeout_ms *= 1_000",
        ("brokers die", "network cut"),
    ),
    Plant(
        "timeouts of brokers are ignored",
        "route.fold.state:FoldState.set_timeout",
        "lease.requested_timeout_ms = requested_timeout_ms",
        "lease.requested_timeout_ms = None",
        _DEATHS,
    ),
    # ---- the server ----
    Plant(
        "a blind server reports closed connections",
        "server.gateway.gateway:Gateway.disconnected",
        "if self.is_blind_for(partition_of(key.broker_name, self.limits.partitions)):",
        "if False:",
        ("server restarted",),
    ),
    Plant(
        "a change is acknowledged before it is in the log",
        "server.gateway.operator_changes:OperatorChanges.add",
        "self.proceed()",
        "self.proceed(); self._report(change, None)",
        (*_KAFKA, "server killed"),
    ),
    Plant(
        "changes do not time out",
        "server.gateway.operator_changes:OperatorChanges.expire",
        "while self._unreported and",
        "while False and",
        _KAFKA,
    ),
    Plant(
        "acknowledgements of changes get lost",
        "server.gateway.operator_changes:OperatorChanges.acked",
        "if not change.unacked:",
        "if change.unacked:",
    ),
    Plant(
        "what a lost session had queued is forgotten",
        "server.gateway.publisher:_Session.abandon",
        "return lost",
        "return []",
        _KAFKA,
    ),
    Plant(
        "a session goes on after a lost record",
        "server.gateway.publisher:_Session._fail",
        "if not self._failed.is_set():",
        "if False:",
        _KAFKA,
    ),
    Plant(
        "registrations during an outage are not kept",
        "server.gateway.partition_log:PartitionLog.put",
        "self._remember(item)",
        "pass",
        ("Kafka away", "brokers restart"),
    ),
    Plant(
        "the outage buffer forgets newer events",
        "server.gateway.records:OutageBuffer.published",
        "for key in self._publishing:",
        "for key in list(self._latest):",
        ("Kafka away", "Kafka slow", "brokers restart"),
    ),
    Plant(
        "a starting server does not read the end of the log",
        "server.start.opening:read_log_tail",
        "records = _read(reader, ranges, tail, lambda: clock.monotonic_ms() >= until_ms) if ranges else 0",
        "records = 0",
        ("job frozen", "job slow", "server restarted"),
    ),
    Plant(
        "an unreadable record stops the reading of the log's end",
        "server.start.opening:LogTail.take",
        "return True  # the job writes it to the dead-letter topic",
        "raise",
        ("unreadable records", "job frozen", "server killed"),
    ),
    Plant(
        "accepted events stay in the view",
        "route.view_layers:Pending.is_covered",
        "return self.position is not None and",
        "return False and",
        _DEATHS,
    ),
    Plant(
        "accepted events leave the view too early",
        "route.view_layers:Pending.is_covered",
        "self.position[1] < next_offsets.get(self.position[0], 0)",
        "True",
        ("job slow", "brokers restart"),
    ),
    Plant(
        "a server remembers registrations of brokers that are gone",
        "server.view.served_view:ServedView.committed",
        "memory.forget(lease_key(change))",
        "pass",
        ("network cut", "brokers stall"),
    ),
    Plant(
        "commits are applied twice",
        "server.view.commit_applier:CommitApplier._committed",
        "self._view.committed(changes, next_offsets)",
        "self._view.committed(changes[:-1], next_offsets)",
    ),
    # ---- tables and job ----
    Plant(
        "rows that are there already are written again",
        "tables.route_writers:ChangesWriter.write",
        "fresh = from_offsets(rows, self.committed) if rows.num_rows else rows",
        "fresh = rows",
        ("job killed", "job killed during a write", "brokers restart"),
    ),
    Plant(
        "progress without rows is committed with the next rows only",
        "tables.route_writers:ChangesWriter.write",
        "is_due |= time.monotonic() - self._committed_s >= self._progress_interval_s",
        "pass",
    ),
    Plant(
        "the state covers one record too many",
        "tables.route_writers:next_state",
        '(pc.field("offset") < new.next_offset)',
        '(pc.field("offset") < new.next_offset - 1)',
        ("server restarted", "job killed"),
    ),
    Plant(
        "the state keeps deleted keys",
        "tables.route_writers:newest_live_rows",
        'parts.append(last.filter(pc.invert(last["gone"])))',
        "parts.append(last)",
        ("server restarted", "brokers restart"),
    ),
    Plant(
        "compaction loses a file",
        "tables.compaction:join_small_files",
        "joined = tuple(_join(table.storage, group) for group in groups)",
        "joined = tuple(_join(table.storage, group[1:]) for group in groups)",
        _DEATHS,
    ),
    Plant(
        "a writer does not check that its last commit is still there",
        "tables.delta.table_writer:TableWriter._attempt",
        "if self._read(self.version) != self._newest:",
        "if False:",
        ("tables backed up", "tables restored"),
    ),
    Plant(
        "an unreadable record ends the job",
        "route.fold.fold_record:fold",
        "output.dead_letters.append(DeadLetter(record.partition, record.offset, -1, error.reason))",
        "raise",
        ("unreadable records",),
    ),
    Plant(
        "a full disk leaves the writer in a wrong state",
        "tables.delta.table_writer:TableWriter.commit",
        "content = self._encode(change)",
        "content = self._encode(change); self.progress.update(change.advanced)",
        ("disk full",),
    ),
    Plant(
        "a follower stops at a damaged commit",
        "tables.snapshot_follower:SnapshotFollower._follow",
        "if not self._continues(commit):",
        "if not self._continues(commit) and self._stop.wait(1e9):",
        ("tables backed up", "tables restored"),
    ),
)


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Plant a fault while simulations run."""
    module_name, _, name = plant.place.partition(":")
    module = importlib.import_module(f"namesrv_stream.{module_name}")
    owner: Any = module
    *outer, last = name.split(".")
    for part in outer:
        owner = getattr(owner, part)
    before = inspect.getattr_static(owner, last)
    function = inspect.unwrap(before) if isinstance(before, FunctionType) else before
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(plant.old) != 1:
        raise ValueError(f"{plant.name}: {plant.place} contains the text {source.count(plant.old)} times")
    found: dict[str, Any] = {}
    exec(compile(source.replace(plant.old, plant.new), f"<planted: {plant.name}>", "exec"), vars(module), found)
    users = [m for key, m in sorted(sys.modules.items()) if key.startswith("namesrv_stream.")]
    places = [(m, last) for m in users if not outer and vars(m).get(last) is before] if not outer else [(owner, last)]
    for place, attribute in places:
        setattr(place, attribute, found[last])
    try:
        yield
    finally:
        for place, attribute in places:
            setattr(place, attribute, before)


def find(plant: Plant, seeds: int, seconds: int = 240) -> tuple[int, Outcome | None]:
    """Simulate seeds until one fails. Return the number of seeds, and the outcome that shows the fault."""
    with planted(plant):
        for number in range(1, seeds + 1):
            outcome = simulate(number, Shape(6, seconds, plant.faults or None, quiet_s=240, pace_s=8))
            if outcome.failures:
                return number, outcome
    return seeds, None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names to plant")
    parser.add_argument("--seeds", type=int, default=20, help="seeds to try for each (default: 20)")
    parser.add_argument("--part", default="1/1", help="only the Nth of M parts of the list")
    args = parser.parse_args()
    part, parts = map(int, args.part.split("/"))
    missed = []
    for plant in [p for p in PLANTS if args.only in p.name][part - 1 :: parts]:
        seeds, outcome = find(plant, args.seeds)
        if outcome is None:
            missed.append(plant.name)
            print(f"NOT FOUND  {plant.name}: {seeds} seeds", flush=True)
        else:
            invariant, detail = outcome.failures[0]
            print(f"found      {plant.name}: seed {seeds}, {invariant}: {detail[:200]}", flush=True)
    print(f"not found: {missed or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
