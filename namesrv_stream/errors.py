"""All errors of the product, by the party that is at fault. Those marked with * are in ``table_errors``.

::

    NamesrvStreamError                 exit_code 1
    ├── RemotingError                  the peer broke the wire protocol: only its connection is closed
    │   ├── FrameTooLarge
    │   │   └── ForeignProtocol        its first bytes are those of HTTP or TLS
    │   ├── HeaderDecodeError
    │   ├── ProxyProtocolError
    │   ├── TlsNotServed
    │   ├── PlainNotServed
    │   ├── TlsBroken
    │   └── BodyDecodeError            the frame is valid, its body is not: answered, the connection stays
    ├── RequestError                   the frame is valid, the request is not: answered with a code and a remark
    ├── EventDecodeError               a record of the log cannot be read: it goes to the dead-letter topic
    ├── ConfigError                    exit 2: names the file and the key
    ├── TableSchemaMismatch *          exit 2: a Delta table has a different schema than this version expects
    │   └── TableDamaged *             exit 1: a file of it is missing, cut short or altered; the job repairs it
    ├── DuplicateServerId *            exit 2: another server with the same id is running
    ├── StateFromNewerVersion *        exit 2: the fold's state was written by a newer version of this program
    ├── TablesTakenOver *              exit 1: another job commits to the tables
    ├── LogTruncated *                 exit 2: Kafka no longer holds what the fold needs next
    ├── RecordsRemoved *               exit 1: Kafka removed records by retention before they were read
    ├── RecordsLost *                  exit 1: Kafka has lost records that were folded but not committed
    ├── LogReplaced *                  exit 2: Kafka's log is not the one that the tables belong to
    ├── StateMissing *                 exit 2: there is no state from which the job can start
    ├── NoStartPoint *                 exit 1: the log has no point from which it can be folded again
    ├── NotInHistory *                 exit 1: the history does not contain the requested data
    ├── RebuildRefused *               exit 1: the new tables would lose or change data of the old ones
    └── PrerequisiteMissing            exit 3: names what is missing and how to get it
        ├── KafkaUnreachable
        │   ├── KafkaRefuses           Kafka answers, and does not permit a request
        │   └── KafkaRefusesLogin      Kafka answers, and refuses the user or the password
        └── StoreUnreachable
"""

from typing import ClassVar


class NamesrvStreamError(Exception):
    """Base of all errors; its text is one line: what is wrong and, if a user can act, what to do."""

    exit_code: ClassVar[int] = 1


class RemotingError(NamesrvStreamError):
    """The peer broke the wire protocol."""


class FrameTooLarge(RemotingError):
    """A length prefix announces more bytes than allowed, or a negative number of them.

    Args:
        length: Announced bytes, prefix included.
        limit: Most bytes allowed, prefix included.
    """

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"frame of {length} bytes exceeds the limit of {limit}")


class ForeignProtocol(FrameTooLarge):
    """The first bytes are those of another protocol, and would be the length of a huge frame."""

    def __init__(self, protocol: str) -> None:
        RemotingError.__init__(self, f"the peer uses {protocol} at this port, not RocketMQ's protocol")


class HeaderDecodeError(RemotingError):
    """A frame's header cannot be decoded.

    Args:
        serialize_type: The frame's type byte; None if the frame is too short to have one.
    """

    def __init__(self, serialize_type: int | None, reason: str) -> None:
        super().__init__(f"header of serialize type {serialize_type} cannot be decoded: {reason}")


class ProxyProtocolError(RemotingError):
    """A connection begins with a malformed PROXY preamble."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"PROXY preamble is malformed: {reason}")


class TlsNotServed(RemotingError):
    """A connection begins with a TLS handshake, but the server has no TLS."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the connection begins with a TLS handshake, but this server has no TLS: {reason}")


class PlainNotServed(RemotingError):
    """A connection does not begin with a TLS handshake, which is required."""

    def __init__(self) -> None:
        super().__init__("the connection does not begin with a TLS handshake, and tls.mode is enforcing")


class TlsBroken(RemotingError):
    """A TLS handshake failed, or a record cannot be read.

    Attributes:
        is_handshake: True if the handshake failed, False if a record cannot be read.
        content: The content of the valid records that arrived just before the broken one.
    """

    def __init__(self, reason: str, *, is_handshake: bool, content: bytes = b"") -> None:
        super().__init__(f"TLS {'handshake failed' if is_handshake else 'record is broken'}: {reason}")
        self.is_handshake = is_handshake
        self.content = content


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


class RequestError(NamesrvStreamError):
    """A request that is answered with an error; ``processor.dispatch`` maps classes to response codes."""


class TopicNotExist(RequestError):
    """No broker of the view serves the topic.

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
    """A request that cannot be completed now: the log does not accept the change, or its outcome is unknown.

    The text says which.
    """


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
        source: Where the fault is: a file, an environment variable, a flag, a table, or "settings".
        key: The setting.
        reason: What is wrong, and what is expected.
    """

    exit_code = 2

    def __init__(self, source: str, key: str, reason: str) -> None:
        super().__init__(f"{source}: {key}: {reason}")
        self.source = source
        self.key = key
        self.reason = reason


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

    _problem = "does not answer"
    _remedy = "start it, or correct kafka.bootstrap_servers and kafka.extra"

    def __init__(self, bootstrap_servers: str, reason: str) -> None:
        super().__init__(f"Kafka at {bootstrap_servers} {self._problem} ({reason})", self._remedy)


class KafkaRefuses(KafkaUnreachable):
    """Kafka does not permit a request of this user. Callers treat it as an outage: an ACL may permit it later."""

    _problem = "does not permit a request"
    _remedy = "grant this user the operations that docs/production.md lists"


class KafkaRefusesLogin(KafkaUnreachable):
    """Kafka does not accept the user or the password. Callers treat it as an outage: Kafka may accept them later."""

    _problem = "refuses the login"
    _remedy = "correct the user and the password in kafka.extra"


class StoreUnreachable(PrerequisiteMissing):
    """The object store of the tables does not answer, or refuses a request.

    Attributes:
        place: The address of the object to read or write.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} cannot be reached ({reason})", "start the store, or correct data.tables and data.extra"
        )
        self.place = place
