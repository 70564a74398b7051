"""A question to ``why``, and the facts from which it is answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal

from namesrv_stream.route.address_views import AddressView
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.why.findings import Finding


@dataclass(frozen=True, slots=True)
class Question:
    """The question why clients have no route to a topic or a broker name, or one that they cannot use.

    Attributes:
        cluster: The cluster in which the client looks for it; None for any.
        zone: The client's zone; None if it is not in zone mode.
        client: The client's IP address, on which its address view may depend; None if unknown.
    """

    subject: Literal["topic", "broker"]
    name: str
    cluster: str | None = None
    zone: str | None = None
    client: str | None = None


def is_address(text: str) -> bool:
    """Whether a text is an IP address, as ``Question.client`` needs it."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Known:
    """What the tables know about the name in question.

    Attributes:
        rows: The newest row of each key that concerns the name, including deleted keys.
        near: Known names that are similar to the name; used only if no broker has ever registered it.
        default_topic: Like ``rows``, for the topic TBW102; used only if no broker has ever registered the name.
        has_brokers: Whether any broker was registered at the moment in question.
    """

    rows: Sequence[RouteChange] = ()
    near: Sequence[str] = ()
    default_topic: Sequence[RouteChange] = ()
    has_brokers: bool = True


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refused requests about a name: why the last one was refused, and when the first and the last one arrived.

    The times are in milliseconds, monotonic in ``NameServer.refusals`` and since the epoch in ``Facts``.
    """

    text: str
    since_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class Facts:
    """A question, and what is known about it at one moment.

    Attributes:
        at_ms: The moment, epoch milliseconds.
        table: The routes at that moment; at least those that concern the name.
        elsewhere: Other name servers that route the name.
        refusals: Name of a topic or broker → requests about it that this server refused.
        of_server: What is wrong with the server itself.
        late: Human-readable names of the broker's processes whose last heartbeat is older than half of their timeout.
            For a topic, its masters if all of them are late.
        with_order: Whether clients receive order configurations.
        view: The address view of the client; None for none.
    """

    question: Question
    known: Known
    table: RouteTable
    at_ms: int
    elsewhere: Sequence[str] = ()
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    of_server: Sequence[Finding] = ()
    late: Sequence[str] = ()
    with_order: bool = False
    view: AddressView | None = None

    @property
    def name(self) -> str:
        """The topic or broker name."""
        return self.question.name

    @property
    def rows(self) -> Sequence[RouteChange]:
        """What the tables know about the name."""
        return self.known.rows
