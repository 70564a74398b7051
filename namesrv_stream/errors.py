"""All errors of the product, by the party at fault.

::

    NamesrvStreamError                 exit_code 1
    ├── RemotingError                  the peer broke the wire protocol: only its connection is closed
    │   ├── FrameTooLarge
    │   ├── HeaderDecodeError
    │   ├── ProxyProtocolError
    │   ├── TlsNotServed
    │   ├── PlainNotServed
    │   ├── TlsBroken
    │   └── BodyDecodeError            the frame is valid, its body is not: answered, the connection stays
    ├── RequestError                   the frame is valid, the request is not: answered with a code and a remark
    ├── EventDecodeError               a record of the log cannot be read: to the dead-letter topic
    ├── ConfigError                    exit 2: names the file and the key
    ├── TableSchemaMismatch            exit 2: a Delta table has another schema than this version expects
    │   └── TableDamaged               exit 1: a file of it is missing, cut short or altered; the job repairs it
    ├── DuplicateServerId              exit 2: another server with the same id is running
    ├── StateFromNewerVersion          exit 2: the fold's state was written by a newer version of this program
    ├── TablesTakenOver                exit 1: another job commits to the tables
    ├── LogTruncated                   exit 2: Kafka no longer holds what the fold needs next
    ├── LogReplaced                    exit 2: Kafka's log is not the one that the tables belong to
    ├── StateMissing                   exit 2: there is no state from which the job can start
    ├── NoStartPoint                   exit 1: a replay has no start
    ├── NotInHistory                   exit 1: the history does not contain the requested data
    ├── RebuildRefused                 exit 1: the new tables would lose or change data of the old ones
    └── PrerequisiteMissing            exit 3: names what is missing and how to get it
        ├── KafkaUnreachable
        └── StoreUnreachable
"""

from typing import ClassVar


class NamesrvStreamError(Exception):
    """Base of all errors; its text is one line that says what to do."""

    retriable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1


class RemotingError(NamesrvStreamError):
    """The peer broke the wire protocol."""


class FrameTooLarge(RemotingError):
    """A length prefix announces more bytes than allowed, or a negative number of them.

    Attributes:
        length: Announced bytes, prefix included.
        limit: Most bytes allowed, prefix included.
    """

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"frame of {length} bytes exceeds the limit of {limit}")
        self.length = length
        self.limit = limit


class HeaderDecodeError(RemotingError):
    """A frame's header cannot be decoded.

    Attributes:
        serialize_type: The frame's type byte; None if the frame is too short to have one.
        reason: What is wrong.
    """

    def __init__(self, serialize_type: int | None, reason: str) -> None:
        super().__init__(f"header of serialize type {serialize_type} cannot be decoded: {reason}")
        self.serialize_type = serialize_type
        self.reason = reason


class ProxyProtocolError(RemotingError):
    """A connection begins like a PROXY preamble, but with an invalid one."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"PROXY preamble is malformed: {reason}")


class TlsNotServed(RemotingError):
    """A connection begins with a TLS handshake, but the server has no TLS."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"it begins with a TLS handshake, and TLS is not served here: {reason}")


class PlainNotServed(RemotingError):
    """A connection does not begin with a TLS handshake, which is required."""

    def __init__(self) -> None:
        super().__init__("it does not begin with a TLS handshake, and tls.mode is enforcing")


class TlsBroken(RemotingError):
    """A TLS handshake failed, or a record cannot be read.

    Attributes:
        is_handshake: Whether it was the handshake.
        sound: The content of the valid records before it that arrived with it.
    """

    def __init__(self, reason: str, *, is_handshake: bool, sound: bytes = b"") -> None:
        super().__init__(f"TLS {'handshake failed' if is_handshake else 'record is broken'}: {reason}")
        self.is_handshake = is_handshake
        self.sound = sound


class BodyDecodeError(RemotingError):
    """A request's body cannot be decoded; the frame around it is valid.

    Attributes:
        request_code: The request's code.
        reason: What is wrong.
    """

    def __init__(self, request_code: int, reason: str) -> None:
        super().__init__(f"body of request {request_code} cannot be decoded: {reason}")
        self.request_code = request_code
        self.reason = reason

    def __reduce__(self) -> tuple[type["BodyDecodeError"], tuple[int, str]]:
        return type(self), (self.request_code, self.reason)  # it crosses a process boundary


class RequestError(NamesrvStreamError):
    """A request that is answered with an error; ``processor.dispatch`` maps classes to response codes."""


class TopicNotExist(RequestError):
    """No broker in view serves the topic.

    Attributes:
        topic: The requested topic.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(f"no route for topic {topic}")
        self.topic = topic


class RequestRefused(RequestError):
    """A request that Java's NameServer answers with SYSTEM_ERROR; the text is the remark, with Java's words."""


class QueryNotFound(RequestError):
    """No such KV entry or namespace; the text is the remark, with Java's words."""


class NoPermission(RequestError):
    """The peer may not send this request; the text says what it needs.

    Attributes:
        for_log: The reason for the server's log, which may contain more than the peer gets.
    """

    def __init__(self, text: str, *, for_log: str = "") -> None:
        super().__init__(text)
        self.for_log = for_log


class SystemBusy(RequestError):
    """Not possible now: the log does not accept the change, or the outcome is unknown; the text says which."""


class EventDecodeError(NamesrvStreamError):
    """A record, or one item of it, that is not a valid event.

    Attributes:
        reason: What is wrong, with the field's name.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ConfigError(NamesrvStreamError):
    """A setting is unknown or invalid.

    Attributes:
        source: The file, environment variable or flag with the setting, or the system that has the fault.
        key: The setting.
        reason: What is wrong, and what is expected.
    """

    exit_code = 2

    def __init__(self, source: str, key: str, reason: str) -> None:
        super().__init__(f"{source}: {key}: {reason}")
        self.source = source
        self.key = key
        self.reason = reason


class TableSchemaMismatch(NamesrvStreamError):
    """A Delta table has another schema than this version expects.

    Attributes:
        table: Path of the table.
        reason: The difference.
    """

    exit_code = 2

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"table {table}: {reason}")
        self.table = table
        self.reason = reason


class TableDamaged(TableSchemaMismatch):
    """A file of a Delta table is missing, cut short or altered.

    Attributes:
        file: Name of the file, relative to the table.
        damage: The file and what is wrong with it.
    """

    exit_code = 1  # the job's next start repairs it

    def __init__(self, table: str, file: str, reason: str) -> None:
        self.file = file
        self.damage = f"{file} {reason}"
        super().__init__(
            table,
            f"{self.damage}; the job repairs what the log allows at its start, else stop it and run"
            " `namesrv-stream rebuild`",
        )


class TablesTakenOver(NamesrvStreamError):
    """Another job commits to the tables that this one writes.

    Attributes:
        table: Path of the table that shows it.
        version: The version of the table that shows it.
    """

    exit_code = 1  # a stand-by is restarted until it can take over

    def __init__(self, table: str, version: int) -> None:
        super().__init__(
            f"table {table}: version {version} is not this job's: another job has taken over these tables, or another"
            " program has changed them; this one ends and has written nothing behind that: let only one job run"
        )
        self.table = table
        self.version = version


class DuplicateServerId(NamesrvStreamError):
    """Another server with the same id writes to the event log.

    Attributes:
        server_id: The id.
        epoch: The other one's start.
    """

    exit_code = 2

    def __init__(self, server_id: str, epoch: int) -> None:
        super().__init__(
            f"server.server_id: another server with the id {server_id!r} is running, started at {epoch} (epoch"
            " milliseconds), and this one, which is younger, ends: give each server an id of its own; where this data"
            " directory was copied, delete its server/identity.json. If both have been running, restart the older one"
        )
        self.server_id = server_id
        self.epoch = epoch


class StateFromNewerVersion(NamesrvStreamError):
    """The fold's state was written by a newer version of this program.

    Attributes:
        version: Version of the state.
        newest: The newest version that this program reads.
    """

    exit_code = 2

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(
            f"the fold's state is of version {version}, this program reads up to {newest}: run the program that wrote"
            " it, or stop the job and run this one's `namesrv-stream rebuild`: it makes state and tables from the log"
        )
        self.version = version
        self.newest = newest


class LogTruncated(NamesrvStreamError):
    """Kafka no longer holds the next record that the fold needs.

    Attributes:
        partition: Kafka partition.
        wanted: The next offset to fold.
        earliest: The first offset that Kafka still has.
        end: The offset of the next record that Kafka will get.
    """

    exit_code = 2

    def __init__(self, partition: int, wanted: int, earliest: int, end: int) -> None:
        if wanted > end:
            found = f"ends at {end}: Kafka has lost records that were folded already; bring its log back, or run"
        else:
            found = f"begins at {earliest}: records were removed before they were folded; run"
        super().__init__(
            f"partition {partition}: offset {wanted} is to be folded next but Kafka's log {found}"
            " `namesrv-stream rebuild --accept-loss` while the job is stopped, to go on with what Kafka has"
        )
        self.partition = partition
        self.wanted = wanted
        self.earliest = earliest
        self.end = end


class LogReplaced(NamesrvStreamError):
    """Kafka's log is not the one that the tables belong to.

    Attributes:
        reason: What shows it.
    """

    exit_code = 2

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}; bring that log back, or run `namesrv-stream rebuild --accept-loss` while the job is stopped, to"
            " go on with what Kafka has"
        )
        self.reason = reason


class StateMissing(NamesrvStreamError):
    """``route_state`` has no state from which the job can start.

    Attributes:
        partition: Kafka partition.
        covered: First offset that ``route_changes`` does not cover.
        earliest: The first offset that Kafka still has.
    """

    exit_code = 2

    def __init__(self, partition: int, covered: int, earliest: int) -> None:
        super().__init__(
            f"partition {partition}: route_state has no state at or before offset {covered}, to which route_changes"
            f" reaches, that Kafka's log, which begins at {earliest}, could be folded from;"
            " run `namesrv-stream rebuild` while the job is stopped"
        )
        self.partition = partition
        self.covered = covered
        self.earliest = earliest


class NoStartPoint(NamesrvStreamError):
    """The log has no offset 0, or a gap after it, and no stored fold state allows to fold it.

    Attributes:
        partition: Kafka partition.
        wanted: The offset to compare from; None for the earliest possible.
        earliest: The first offset from which the log has no gap.
        possible: The first offset from which it can be folded; None if there is none.
    """

    def __init__(
        self, partition: int, wanted: int | None, earliest: int, possible: int | None, gap: str | None = None
    ) -> None:
        """Create the error.

        Args:
            gap: What is missing before ``earliest``, and why.
        """
        before = "" if wanted is None else f" at or before offset {wanted}"
        remedy = (
            "the job, where it runs, writes one each minute" if possible is None else f"it can be from {possible} on"
        )
        why = "" if gap is None else f" ({gap})"
        super().__init__(
            f"partition {partition}: the log is whole from {earliest} on{why}, and route_state keeps no state{before}"
            f" from which it could be folded; {remedy}"
        )
        self.partition = partition
        self.wanted = wanted
        self.earliest = earliest
        self.possible = possible


class RecordsRemoved(NamesrvStreamError):
    """Kafka removed records by their retention before they were read.

    Attributes:
        partition: Kafka partition.
        wanted: The next offset to read.
        earliest: The first offset that Kafka still has.
    """

    retriable = True

    def __init__(self, partition: int, wanted: int, earliest: int) -> None:
        super().__init__(
            f"partition {partition}: Kafka removed the record at offset {wanted} before it was read, its log now begins"
            f" at {earliest}; run the command again"
        )
        self.partition = partition
        self.wanted = wanted
        self.earliest = earliest


class NotInHistory(NamesrvStreamError):
    """The history does not contain the requested data; the text says what it contains, and why not more."""


class RebuildRefused(NamesrvStreamError):
    """A rebuild would lose or change data; nothing was changed, the text says which flag allows it."""


class PrerequisiteMissing(NamesrvStreamError):
    """Something outside the project is missing.

    Attributes:
        name: What is missing.
        remedy: How to get it.
    """

    exit_code = 3

    def __init__(self, name: str, remedy: str) -> None:
        super().__init__(f"{name}: {remedy}")
        self.name = name
        self.remedy = remedy


class KafkaUnreachable(PrerequisiteMissing):
    """No Kafka broker answers at the configured address."""

    retriable = True

    def __init__(self, bootstrap_servers: str, reason: str) -> None:
        super().__init__(
            f"Kafka at {bootstrap_servers} does not answer ({reason})",
            "start it, or correct kafka.bootstrap_servers",
        )
        self.bootstrap_servers = bootstrap_servers


class StoreUnreachable(PrerequisiteMissing):
    """The object store of the tables does not answer, or refuses a request.

    Attributes:
        place: The object to read or write.
        reason: What is wrong.
    """

    retriable = True

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} cannot be reached ({reason})", "start the store, or correct data.tables and data.extra"
        )
        self.place = place
        self.reason = reason
