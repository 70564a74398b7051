"""The catalogue of causes of missing or unusable routes: what each one means, and what to do about it."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import nlargest
from typing import Final, Literal

from namesrv_stream.route.changes import RouteChange


class Why(StrEnum):
    """Why clients do not get a usable route. docs/why.md lists all causes."""

    NEVER_REGISTERED = "never_registered"
    BROKER_NEVER_REGISTERED = "broker_never_registered"
    AUTO_CREATION_OFF = "auto_creation_off"
    DEFAULT_TOPIC_GONE = "default_topic_gone"
    NO_BROKERS = "no_brokers"
    NEAR_MISS = "near_miss"
    ACCESS_DENIED = "access_denied"
    TOPIC_DELETED = "topic_deleted"
    TOPIC_LEFT_OUT = "topic_left_out"
    BROKER_EXPIRED = "broker_expired"
    BROKER_DISCONNECTED = "broker_disconnected"
    BROKER_UNREGISTERED = "broker_unregistered"
    BROKER_REMOVED = "broker_removed"
    OTHER_SERVER = "other_server"
    OTHER_CLUSTER = "other_cluster"
    HIDDEN_BY_ZONE = "hidden_by_zone"
    ADDRESS_NOT_MAPPED = "address_not_mapped"
    ONLY_SLAVES = "only_slaves"
    WRITE_PERM_WIPED = "write_perm_wiped"
    NO_PERMISSION = "no_permission"
    READ_ONLY = "read_only"
    WRITE_ONLY = "write_only"
    ORDER_NAMES_GONE = "order_names_gone"
    CONTRADICTION = "contradiction"
    HELD_BY_GUARD = "held_by_guard"
    HEARTBEAT_LATE = "heartbeat_late"
    CLIENT_CACHE = "client_cache"
    SERVER_STALE = "server_stale"
    SERVER_BLIND = "server_blind"
    NOTHING_WRONG = "nothing_wrong"


class Entry:
    """What a cause means, and what to do. ``{name}`` is the topic or broker, ``{what}`` what else is involved.

    Attributes:
        remedies: Each of them is enough. ``tests/e2e/test_why.py`` carries out all of them with real brokers.
    """

    def __init__(self, text: str, *remedies: str) -> None:
        self.text = text
        self.remedies = remedies

    @property
    def advice(self) -> str:
        """All remedies as one text."""
        return "; or ".join(self.remedies)


_CREATE: Final = "create the topic with `mqadmin updateTopic -t {name} -c CLUSTER`"
_PERM: Final = "`mqadmin updateTopicPerm -t {name} -c CLUSTER -p 6`"

CATALOGUE: Final[Mapping[Why, Entry]] = {
    Why.NEVER_REGISTERED: Entry(
        "no broker has registered {name}, as far back as the tables reach",
        _CREATE,
        "send to it, if a broker with the topic TBW102 still has autoCreateTopicEnable=true: a broker that once had it"
        " keeps TBW102, but may refuse to create topics",
    ),
    Why.BROKER_NEVER_REGISTERED: Entry(
        "{name} has never registered, as far back as the tables reach",
        "check that the broker runs, that its namesrvAddr names this server, and that it reaches it",
    ),
    Why.AUTO_CREATION_OFF: Entry(
        "no broker has registered {name}, and no broker creates topics automatically: no broker has the topic TBW102",
        _CREATE,
        "set autoCreateTopicEnable=true in a broker's configuration file, restart the broker, and send to the topic",
    ),
    Why.DEFAULT_TOPIC_GONE: Entry(
        "no broker has registered {name}, and the brokers that create topics automatically are gone: {what}",
        _CREATE,
        "start these brokers again, and send to the topic",
    ),
    Why.NO_BROKERS: Entry(
        "no broker is registered at this name server",
        "check that brokers run, that their namesrvAddr names this server, and that they reach it",
    ),
    Why.NEAR_MISS: Entry(
        "{name} is not known, but similar names are: {what}",
        "correct the name in the client; upper and lower case matter",
    ),
    Why.ACCESS_DENIED: Entry(
        "this server refuses requests about {what}",
        "add the broker's address to admin.broker_networks of this server, and restart the server",
        "let the broker sign its requests with one of admin.accounts",
    ),
    Why.TOPIC_DELETED: Entry(
        "{name} was deleted: {what}",
        "if that was a mistake, " + _CREATE,
    ),
    Why.TOPIC_LEFT_OUT: Entry(
        "brokers registered again without {name}: {what}",
        "check whether these brokers have lost their topics (store/config/topics.json), and " + _CREATE,
    ),
    Why.BROKER_EXPIRED: Entry(
        "no broker of {name} is left; the last one sent no heartbeat within its timeout: {what}",
        "check whether the broker still runs, whether it hangs (garbage collection, disk), and its network to this"
        " server; its next registration restores the route",
    ),
    Why.BROKER_DISCONNECTED: Entry(
        "no broker of {name} is left; the connection of the last one was closed: {what}",
        "check whether the broker's process has ended or crashed, and start it again",
    ),
    Why.BROKER_UNREGISTERED: Entry(
        "no broker of {name} is left; the last one unregistered, as brokers do when they are stopped: {what}",
        "start the broker again if it was not stopped on purpose",
    ),
    Why.BROKER_REMOVED: Entry(
        "no broker of {name} is left: {what}",
        "the evidence names the reason; a broker that is alive comes back with its next registration at a server that"
        " is alive",
    ),
    Why.OTHER_SERVER: Entry(
        "another name server routes {name}, and this one does not: {what}",
        "`namesrv-stream skew` compares the servers; check that the brokers' namesrvAddr names all servers",
    ),
    Why.OTHER_CLUSTER: Entry(
        "{name} is only in other clusters: {what}",
        "use name servers and brokers of the right cluster",
        "create the topic in this cluster with `mqadmin updateTopic -t {name} -c CLUSTER`",
    ),
    Why.HIDDEN_BY_ZONE: Entry(
        "clients of this zone do not see {name}, because its brokers are in other zones: {what}",
        "start brokers in the client's zone",
        "switch off the client's zone mode",
    ),
    Why.ADDRESS_NOT_MAPPED: Entry(
        "the client's address view has no mapping for the brokers of {name}: {what}",
        "add a mapping to the view: `namesrv-stream view show VIEW`, docs/address-views.md",
    ),
    Why.ONLY_SLAVES: Entry(
        "only slaves of {name} are left, so clients can read but not send: {what}",
        "start the master again (brokerId 0)",
    ),
    Why.WRITE_PERM_WIPED: Entry(
        "an operator removed the write permission, so clients cannot send to {name}: {what}",
        "if the broker was drained, `namesrv-stream drain BROKER --undo` restores it",
        "`mqadmin addWritePerm -b BROKER`, which also makes read-only topics writable",
    ),
    Why.NO_PERMISSION: Entry(
        "{name} has permission 0, so clients can neither send nor read: {what}",
        _PERM,
    ),
    Why.READ_ONLY: Entry(
        "{name} has no write permission, so clients cannot send: {what}",
        _PERM + ", unless the topic is read-only on purpose",
    ),
    Why.WRITE_ONLY: Entry(
        "{name} has no read permission, so clients cannot consume: {what}",
        _PERM + ", unless the topic is write-only on purpose",
    ),
    Why.ORDER_NAMES_GONE: Entry(
        "the order configuration of {name} names brokers without this topic: {what}",
        "start these brokers again",
        "correct it with `mqadmin updateOrderConf -t {name} -m put -v BROKER:QUEUES`",
    ),
    Why.CONTRADICTION: Entry(
        "brokers report other queues, permissions or mappings than the route has, but no new DataVersion, so this name"
        " server ignores them, as Java's does: {what}",
        "restart the broker",
        "change each of these topics with `mqadmin updateTopic`: a change of another topic, or to the values that the"
        " broker has already, does not help",
        "`namesrv-stream config set take_over_contradictions true` makes name servers accept such content",
    ),
    Why.HELD_BY_GUARD: Entry(
        "the guard keeps brokers of {name} that appear to be dead: {what}",
        "`namesrv-stream guard list` shows them; `guard release CLUSTER` removes them if they are dead",
    ),
    Why.HEARTBEAT_LATE: Entry(
        "the last heartbeat is older than half of the broker's timeout: {what}",
        "check whether the broker hangs, and its network to this server",
    ),
    Why.CLIENT_CACHE: Entry(
        "there is a route, but it changed less than 30 s ago, and a client keeps its old route up to 30 s: {what}",
        "wait 30 s, or restart the client",
    ),
    Why.SERVER_STALE: Entry(
        "this server's routes may be old: {what}",
        "check the job and the tables: `namesrv-stream status`, docs/operations.md",
    ),
    Why.SERVER_BLIND: Entry(
        "this server cannot log what it receives: {what}",
        "check Kafka and this server: `namesrv-stream status`, docs/operations.md",
    ),
    Why.NOTHING_WRONG: Entry(
        "{name} has a route that clients can use: {what}",
        "nothing; if a client still has no route, check its namesrvAddr and the name of the topic in its message",
    ),
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """A row of ``route_changes``; ``partition`` and ``offset`` are the position in Kafka of the event behind it."""

    partition: int
    offset: int
    seq: int
    at_ms: int
    kind: str
    gone: bool
    cause: str
    detail: str | None
    cluster: str | None
    broker_name: str | None
    broker_addr: str | None
    topic: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause of a missing or unusable route, or the finding that nothing is wrong.

    Attributes:
        cause: A value of ``Why``.
        since_ms: Since when, epoch milliseconds; None if unknown.
        evidence: Rows that show it, the newest first; empty if it is not in the tables.
        advice: What to do.
    """

    cause: str
    text: str
    since_ms: int | None
    evidence: Sequence[Evidence]
    advice: str

    @property
    def is_harmless(self) -> bool:
        """Whether clients have a usable route nevertheless."""
        return self.cause in (Why.NOTHING_WRONG, Why.CLIENT_CACHE)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to ``why``.

    Attributes:
        at_ms: The moment that it is about, epoch milliseconds.
        server_id: The server that answered; "" if the answer is from the tables alone.
        is_known: Whether the tables or the routes contain the name.
        is_routed: Whether the topic has a route, or the broker is registered.
        findings: At least one, the most important first.
        notes: What limits the answer.
    """

    subject: Literal["topic", "broker"]
    name: str
    at_ms: int
    server_id: str
    is_known: bool
    is_routed: bool
    findings: Sequence[Finding]
    notes: Sequence[str] = ()

    @property
    def is_usable(self) -> bool:
        """Whether clients have a usable route, judging by the first finding."""
        return self.findings[0].is_harmless


#: The most rows of evidence in a finding; a topic can have had thousands of brokers.
_MOST_ROWS: Final = 10
#: The most names in a text.
_MOST_NAMES: Final = 5


def finding(
    why: Why, name: str, what: Iterable[str] = (), rows: Iterable[RouteChange] = (), *, since_ms: int | None = None
) -> Finding:
    """Return the finding of a cause.

    Args:
        why: The cause.
        name: The topic or broker.
        what: Names of brokers and the like for the text.
        rows: Rows that show it.
        since_ms: Since when, epoch milliseconds; by default, the time of the newest row.
    """
    entry = CATALOGUE[why]
    newest = nlargest(_MOST_ROWS, rows, key=lambda row: (row.at_ms, *row[:3]))
    if since_ms is None and newest:
        since_ms = newest[0].at_ms
    evidence = [Evidence(**{field: getattr(row, field) for field in Evidence.__slots__}) for row in newest]
    names = list(dict.fromkeys(what))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    named = {"name": name, "what": ", ".join(names[:_MOST_NAMES]) + more}
    quoted = named | {"name": shlex.quote(name)}  # a command line that people may copy
    return Finding(
        why, entry.text.format(**named).removesuffix(": "), since_ms, evidence, entry.advice.format(**quoted)
    )
