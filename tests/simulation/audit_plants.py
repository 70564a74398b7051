"""What a planted fault is, and the findings of an audit of the product as they were before their fixes."""

from typing import Final, NamedTuple

from tests.simulation.world import Plan


class Plant(NamedTuple):
    """A planted fault.

    Attributes:
        place: Module and name of the function, below ``namesrv_stream``.
        old: Text of its source.
        new: What it is replaced by.
        faults: Kinds of faults that the runs inject; () for those that the seed draws.
        also: A second (place, old, new), if the fix was made in two places.
        plan: The installation; None for what the seed draws.
    """

    name: str
    place: str
    old: str
    new: str
    faults: tuple[str, ...] = ()
    also: tuple[str, str, str] | None = None
    plan: Plan | None = None


CRASHES: Final = ("power cut of job and tables", "job killed during a write", "server killed")

AUDIT_PLANTS: Final = (
    Plant(
        "H1 files are not synced", "tables.storage.folder:Folder._staged", "os.fsync(file.fileno())", "pass", CRASHES
    ),
    Plant(
        "H1 folders are not synced",
        "tables.storage.folder:Folder._staged",
        "_sync(path.parent)",
        "pass",
        ("power cut of job and tables", "records removed by retention"),
    ),
    Plant(
        "H1 a new table is not synced",
        "tables.repair:create_table",
        "storage.sync([commit_name(0), LOG])",
        "pass",
        ("brokers restart",),
        (
            "tables.delta.table_writer:TableWriter.__init__",
            "storage.sync(commit_name(version) for version in range(max(0, self.version - _SYNCED), self.version + 1))",
            "pass",
        ),
    ),
    Plant(
        "H1 damage is not repaired",
        "tables.repair:repair_table",
        "if damage is None:",
        "if True:",
        ("files damaged",),
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
        ("job killed", "acknowledged records lost"),
        (
            "server.start.identity:LogGuard.check",
            "check_log(self._settings, self._folded(), [partition])",
            "check_log(self._settings, FoldedLog(), [partition])",
        ),
    ),
    Plant(
        "H3 a log that ends too early is accepted",
        "kafka.log_reader:check_log",
        "if place.next_offset > extent.end[partition]:",
        "if False:",
        ("clock jump", "acknowledged records lost"),
    ),
    Plant(
        "H4 a tick does not count requests that wait",
        "server.gateway.gateway:Gateway.beat",
        "self.backlog.when_worked_off(self._tick)",
        "for log in self._logs: log.tick('')",
        ("registrations take long",),
        plan=Plan(1, 1, {"liveness.guard_share_percent": "100"}),
    ),
    Plant(
        "M1 a recreated topic is accepted",
        "server.start.identity:LogGuard.check",
        "end = check_log(self._settings, self._folded(), [partition]).end[partition]",
        "end = check_log(self._settings, FoldedLog(), [partition]).end[partition]",
        ("clock jump", "topic recreated"),
        (
            "server.gateway.publisher:_Session._sent",
            "max(publisher.newest_offset + 1, record.covered)",
            "publisher.newest_offset + 1",
        ),
    ),
    Plant(
        "M2 a follower does not notice that the tables were restored",
        "tables.snapshot_follower:SnapshotFollower._continues",
        "return identity.table_id == self.table_id and _is_same(identity.before, self._followed)",
        "return True",
        ("tables backed up", "tables restored"),
        (
            "tables.snapshot_follower:SnapshotFollower._has_lost_the_log",
            "if not self._table.exists(commit_name(self.version)):",
            "if False:",
        ),
    ),
    Plant(
        "M3 a close by the server itself is evidence",
        "server.net.connection:RemotingConnection.connection_lost",
        "if registered and not self._reason:",
        "if registered:",
        ("brokers stall", "strangers"),
        plan=Plan(1, 1, {"remoting.idle_timeout_ms": "20000"}),
    ),
    Plant(
        "M4 one partition without a leader makes all blind",
        "server.gateway.gateway:Gateway.is_blind_for",
        "not log.is_connected",
        "not self.is_connected",
        ("partition without leader", "brokers die"),
        plan=Plan(2, 3, {"liveness.guard_share_percent": "100"}),
    ),
    Plant(
        "M5 a second server with the same id is not refused",
        "server.start.identity:find_rival",
        "if not earlier.times:",
        "if True:",
        ("server with the same id",),
    ),
    Plant(
        "M6 a second job logs its settings",
        "streaming.route_table.route_job:_Job.run",
        "figures = BatchFigures(self._server_epoch, writer.committed)",
        "figures = BatchFigures(self._server_epoch, writer.committed); self._log_settings()",
        ("second job",),
    ),
    Plant(
        "M7 one client's queries displace the known answers of all",
        "server.native.known_answers:KnownAnswers.know",
        "self._remove(next(iter(self._entries)))",
        "self._entries.clear(), self._keys_of.clear(), setattr(self, 'known_bytes', 0)",
        ("signing clients",),
    ),
)
