"""Further faults to plant: in liveness, in the server, in the tables and the job."""

from typing import Final

from tests.simulation.audit_plants import Plant
from tests.simulation.world import Plan

_KAFKA: Final = ("Kafka away", "Kafka slow", "acknowledgements lost")
_DEATHS: Final = ("brokers die", "brokers restart")

PLANTS: Final = (
    # ---- liveness ----
    Plant(
        "a pause of a server ages its brokers",
        "route.fold.liveness:_gap_ms",
        "return max(0, min(at_ms - previous_ms, state.settings.max_gap_ms))",
        "return max(0, at_ms - previous_ms)",
        ("server frozen", "clock jump"),
        plan=Plan(1, 1, {"liveness.guard_share_percent": "100"}),
    ),
    Plant(
        "the time before a server's start ages brokers",
        "route.fold.liveness:advance_clocks",
        "if not isinstance(event, ServerStarted | ServerResumed):",
        "if True:",
        ("server killed", "server restarted", "brokers die"),
        plan=Plan(1, 1, {"liveness.guard_share_percent": "100"}),
    ),
    Plant(
        "any record expires brokers",
        "route.fold.liveness:advance_clocks",
        "if isinstance(event, Tick):",
        "if True:",
        ("Kafka away", "brokers restart"),
        plan=Plan(1, 1, {"liveness.guard_share_percent": "100"}),
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
        ("network slow", "brokers stall"),
        plan=Plan(1, 1, {"liveness.guard_share_percent": "100"}),
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
        "route.fold.state:FoldState.deadline_ms",
        "self.settings.effective_timeout_ms(lease.requested_timeout_ms)",
        "self.settings.effective_timeout_ms(None)",
        _DEATHS,
    ),
    # ---- the server ----
    Plant(
        "a blind server reports closed connections",
        "server.gateway.gateway:Gateway.disconnected",
        "if self.is_blind_for(partition_of(key.broker_name, self.limits.partitions)):",
        "if False:",
        ("server frozen", "network cut"),
        plan=Plan(1, 1, {"liveness.guard_share_percent": "100"}),
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
        plan=Plan(1, 1, {"liveness.guard_share_percent": "100"}),
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
        "route.view.view_layers:Pending.is_covered",
        "return self.position is not None and",
        "return False and",
        _DEATHS,
    ),
    Plant(
        "accepted events leave the view too early",
        "route.view.view_layers:Pending.is_covered",
        "self.position[1] < next_offsets.get(self.position[0], 0)",
        "True",
        ("job slow", "brokers restart"),
    ),
    Plant(
        "a server remembers registrations of brokers that are gone",
        "server.view.served_view:ServedView.committed",
        "memory.forget(lease_key(change))",
        "pass",
        _DEATHS,
    ),
    Plant(
        "the last row of a commit is not applied",
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
        "the state covers twenty records too many",
        "tables.route_writers:next_state",
        '(pc.field("offset") < new.next_offset)',
        '(pc.field("offset") < new.next_offset - 20)',
        ("server restarted", "job killed"),
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
        "a follower stops at a damaged commit",
        "tables.snapshot_follower:SnapshotFollower._follow",
        "if not self._continues(commit):",
        "if not self._continues(commit) and self._stop.wait(1e9):",
        ("tables backed up", "tables restored"),
    ),
    Plant(
        "the job's ticks hide that Kafka has lost records",
        "streaming.route_table.ticks:Ticker.send",
        ".add_callback(sent)",
        "",
        ("job killed", "acknowledged records lost"),
    ),
)
