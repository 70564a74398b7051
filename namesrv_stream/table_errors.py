"""Errors of the log, the tables and the history; part of the hierarchy in ``errors``."""

from typing import Final

from namesrv_stream.errors import NamesrvStreamError

#: The remedy for tables that belong to another topic. A rebuild does not help:
#: the history tables belong to that topic, too.
RESTORE_OR_NEW_TABLES: Final = 'restore that log, or start with new tables (docs/backup.md, "Kafka\'s log is lost")'


class TableSchemaMismatch(NamesrvStreamError):
    """A Delta table has a different schema than this version expects."""

    exit_code = 2

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"table {table}: {reason}")


class TableDamaged(TableSchemaMismatch):
    """A file of a Delta table is missing, cut short or altered.

    Attributes:
        table: Path or address of the table.
        file: Name of the file, relative to the table.
        damage: The file and what is wrong with it.
    """

    exit_code = 1  # the job's next start repairs it

    def __init__(self, table: str, file: str, reason: str) -> None:
        self.table, self.file = table, file
        self.damage = f"{file} {reason}"
        super().__init__(
            table,
            f"{self.damage}; restart the job, which repairs what the log allows; if it refuses, stop it and run"
            " `namesrv-stream rebuild`",
        )


class TablesTakenOver(NamesrvStreamError):
    """Another job commits to the tables that this one writes."""

    exit_code = 1  # a stand-by is restarted until it can take over

    def __init__(self, table: str, version: int) -> None:
        super().__init__(
            f"table {table}: version {version} is not this job's: another job has taken over these tables, or another"
            " program has changed them; this one has written nothing after that and ends: run only one job"
        )


class DuplicateServerId(NamesrvStreamError):
    """Another server with the same id writes to the event log."""

    exit_code = 2

    def __init__(self, server_id: str, epoch: int) -> None:
        super().__init__(
            f"server.server_id: another server with the id {server_id!r} is running, started at {epoch} (epoch"
            " milliseconds); this one was started later and ends: give every server its own id; if this data"
            " directory was copied, delete its server/identity.json. If both have been running, restart the older one"
        )


class StateFromNewerVersion(NamesrvStreamError):
    """The fold's state was written by a newer version of this program."""

    exit_code = 2

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(
            f"the fold's state is of version {version}, this program reads up to {newest}: run the program that wrote"
            " it, or stop the job and run this one's `namesrv-stream rebuild`, which rebuilds both"
        )


class LogTruncated(NamesrvStreamError):
    """Kafka no longer has the next record that the fold needs.

    Args:
        partition: Kafka partition.
        wanted: The next offset to fold.
        earliest: The first offset that Kafka still has.
        end: The offset that Kafka will give to the next new record.
    """

    exit_code = 2

    def __init__(self, partition: int, wanted: int, earliest: int, end: int) -> None:
        if wanted > end:
            found = f"ends at {end}: Kafka has lost records that were folded already; restore its log, or run"
        else:
            found = f"begins at {earliest}: records were removed before they were folded; run"
        super().__init__(
            f"partition {partition}: offset {wanted} must be folded next, but Kafka's log {found}"
            " `namesrv-stream rebuild --accept-loss` while the job is stopped, to continue with what Kafka has"
        )


class RecordsLost(NamesrvStreamError):
    """Kafka has lost records that were folded but not committed; a restart folds what it has instead."""

    def __init__(self) -> None:
        super().__init__(
            "Kafka has lost records that were folded but not committed; the tables do not contain them, so the next"
            " start of the job continues with the records that Kafka has in their place"
        )


class LogReplaced(NamesrvStreamError):
    """Kafka's log is not the one that the tables belong to."""

    exit_code = 2

    def __init__(self, reason: str, *, is_other_topic: bool = False) -> None:
        """Create the error.

        Args:
            is_other_topic: Whether the tables belong to another topic, not to an earlier state of this one.
        """
        remedy = (
            RESTORE_OR_NEW_TABLES
            if is_other_topic
            else "restore that log, or run `namesrv-stream rebuild --accept-loss` while the job is stopped, to"
            " continue with what Kafka has"
        )
        super().__init__(f"{reason}; {remedy}")


class StateMissing(NamesrvStreamError):
    """``route_state`` has no state from which the job can start.

    Args:
        partition: Kafka partition.
        covered: The first offset that ``route_changes`` does not cover.
        earliest: The first offset that Kafka still has.
    """

    exit_code = 2

    def __init__(self, partition: int, covered: int, earliest: int) -> None:
        super().__init__(
            f"partition {partition}: the job cannot start: Kafka's log begins at {earliest}, route_changes reaches to"
            f" {covered}, and route_state has no state between these offsets;"
            " run `namesrv-stream rebuild` while the job is stopped"
        )


class NoStartPoint(NamesrvStreamError):
    """The log cannot be folded: it lacks offset 0 or has a gap after it, and there is no stored state to start from.

    Args:
        partition: Kafka partition.
        wanted: The offset from which the result should be compared; None for the earliest possible one.
        earliest: The first offset from which the log has no gap.
        possible: The first offset from which the log can be folded; None if there is none.
        gap: What is missing before ``earliest``, and why.
    """

    def __init__(
        self, partition: int, wanted: int | None, earliest: int, possible: int | None, gap: str | None = None
    ) -> None:
        before = "" if wanted is None else f" at or before offset {wanted}"
        remedy = "a running job writes one every minute" if possible is None else f"it can be folded from {possible} on"
        why = "" if gap is None else f" ({gap})"
        super().__init__(
            f"partition {partition}: the log is complete from {earliest} on{why}, but route_state keeps no"
            f" state{before} to fold it from; {remedy}"
        )


class RecordsRemoved(NamesrvStreamError):
    """Kafka removed records by their retention before they were read.

    Args:
        partition: Kafka partition.
        wanted: The next offset to read.
        earliest: The first offset that Kafka still has.
    """

    def __init__(self, partition: int, wanted: int, earliest: int) -> None:
        super().__init__(
            f"partition {partition}: Kafka removed the record at offset {wanted} before it was read; its log now begins"
            f" at {earliest}; run the command again"
        )


class NotInHistory(NamesrvStreamError):
    """The history does not contain the requested data; the text says what the history contains, and why not more."""


class RebuildRefused(NamesrvStreamError):
    """A rebuild would lose or change data; nothing was changed, the text says which flag allows it."""
