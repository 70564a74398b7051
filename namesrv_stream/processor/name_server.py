"""The input of a processor (the server's state and one request) and its result (``Answer``)."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from namesrv_stream.processor.register_body import RegisterBrokerBody, RegistrationBody
from namesrv_stream.processor.route_body import RouteAnswers
from namesrv_stream.remoting.command import RemotingCommand, RequestCode
from namesrv_stream.route.address_views import VIEWS_NAMESPACE, AddressView, AddressViews
from namesrv_stream.route.events import AcceptedEvent, Origin
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import DEFAULT_REGISTRATION_SETTINGS, Holder, LeaseKey, RegistrationSettings
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view.route_view import RouteView
from namesrv_stream.route.why.facts import Refusal


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of RocketMQ's NamesrvConfig that change answers, with its names and defaults.

    Only ``full_registration_interval_ms`` is not RocketMQ's: an unchanged registration is logged in full once in this
    time.
    """

    support_acting_master: bool = False
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    notify_min_broker_id_changed: bool = False
    full_registration_interval_ms: int = 86_400_000


#: Field of ``Options`` → its new value. A whole ``Options`` would undo other changes that were made before this one is
#: in the log.
OptionChanges = Mapping[str, int | bool]
_NO_CHANGES: Final[OptionChanges] = MappingProxyType({})


class LoggedRegistration(NamedTuple):
    """A registration that this server has logged in full, over a connection that is still open (ADR 0062).

    Attributes:
        registration_hash: "" if the same registration must be logged in full again.
        holder: The connection.
        at_ms: Monotonic time.
        group: The group that contains it, so that the same registration would not change it; None if that is unknown.
        settings: Those on which this depends.
    """

    registration_hash: str
    holder: Holder
    at_ms: int
    group: BrokerGroup | None = None
    settings: RegistrationSettings = DEFAULT_REGISTRATION_SETTINGS


class Peer(NamedTuple):
    """The sender of a request.

    ``host`` is the IP address of the socket's other end, "" if unknown. If the connection began with a PROXY preamble,
    ``is_proxied`` is true, and ``host`` is the proxy's address. ``client_host`` and ``listener`` choose the address
    view (``AddressViews.view_of``).
    """

    host: str
    is_proxied: bool
    client_host: str = ""
    listener: str = ""


Networks = tuple[IPv4Network | IPv6Network, ...]


def networks_of(texts: Iterable[str]) -> Networks:
    """Parse networks in CIDR notation; a single address is a network of one.

    Raises:
        ValueError: A text is not a network; the message names it.
    """
    return tuple(ip_network(text, strict=False) for text in texts)


_THIS_MACHINE: Final = networks_of(("127.0.0.0/8", "::1/128"))
_ANYBODY: Final = networks_of(("0.0.0.0/0", "::/0"))


@dataclass(frozen=True, slots=True)
class Access:
    """The permissions for requests of operators and brokers.

    Attributes:
        trusted_networks: Networks whose peers need no signature for admin requests, unless they use a proxy.
        accounts: RocketMQ ACL accounts: AccessKey → secret.
        broker_networks: Networks whose peers need no signature for brokers' requests, even through a proxy.
        proxy_networks: Networks of proxies whose PROXY preambles choose the address view.
    """

    trusted_networks: Networks = _THIS_MACHINE
    accounts: Mapping[str, str] = field(default_factory=dict, repr=False)
    enable_config_update: bool = False
    broker_networks: Networks = _ANYBODY
    proxy_networks: Networks = ()


@dataclass(slots=True)
class NameServer:
    """The state from which one server answers. Only ``reconfigure`` changes the options.

    Attributes:
        logged: Broker process → its registration.
        is_unbroken: Returns whether, since a monotonic time, this server has heard a broker without a pause after which
            the fold may have removed it.
        refusals: Name of a broker or topic → requests of brokers about it that were refused because of who sent them;
            monotonic times.
        asked: Topic → monotonic time of its last route query, except those that were answered from a cache.
        started_ms: Monotonic time of the server's start.
        config: RocketMQ's key → configured value, for keys that this server uses. Values that can change at run time
            come from ``options`` and the table instead (``configuration.effective_config``).
    """

    view: RouteView
    answers: RouteAnswers
    options: Options
    logged: dict[LeaseKey, LoggedRegistration] = field(default_factory=dict)
    is_unbroken: Callable[[LeaseKey, int], bool] = lambda key, since_ms: True
    refusals: dict[str, Refusal] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    started_ms: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    views: AddressViews = field(default_factory=AddressViews)

    @property
    def table(self) -> RouteTable:
        return self.view.table

    @property
    def drops_absent_topics(self) -> bool | None:
        """Whether a registration deletes the topics that it does not list; None if the log has no such setting."""
        value = self.table.settings.get(("effective", "delete_topic_with_broker_registration"))
        return None if value is None else value == "true"

    def refresh_views(self) -> bool:
        """Read the address views again if their KV entries have changed; return whether they have."""
        entries = self.table.kv.get(VIEWS_NAMESPACE, {})
        if entries == self.views.entries:
            return False
        self.views = AddressViews(entries, self.views.next_number)
        self.answers.forget_views()
        return True

    def reconfigure(self, changes: OptionChanges) -> None:
        """Change options; the next answers use them."""
        self.options = replace(self.options, **changes)  # type: ignore[arg-type] # names and types match ``OPTION_OF``
        self.answers.support_acting_master = self.options.support_acting_master


#: The body of a registration, or the reason why it cannot be read: an error would keep frames, and so the body, alive.
DecodedBody = RegisterBrokerBody | str


class Call(NamedTuple):
    """A request that arrived at ``now_ms`` (monotonic).

    ``decoded`` is the body of a registration if the server has decoded it already, because it is large; ``view`` is the
    client's address view; ``must_wait`` is whether the log has no room for events of peers now.
    """

    request: RemotingCommand
    origin: Origin
    now_ms: int
    peer: Peer = Peer("", False)
    decoded: DecodedBody | None = None
    view: AddressView | None = None
    must_wait: bool = False


class Accepted(NamedTuple):
    """An accepted event: ``logged`` goes to Kafka, ``applied`` changes the view at once (None: no change)."""

    logged: AcceptedEvent
    applied: AcceptedEvent | None


class Dependency(NamedTuple):
    """The state on which an answer depends besides its request: the route of a topic, or the group of a broker name.

    An answer that depends on a broker also depends on the connection of its request.
    """

    kind: Literal["topic", "broker"]
    name: str


class LongBody(NamedTuple):
    """A body that grows with the number of topics or brokers. It is computed in pieces, which are joined.

    Bodies with the same ``key`` and ``version`` are the same. ``pieces`` begins a computation, which shows the state at
    the moment of its first piece.
    """

    key: tuple[Hashable, ...]
    version: Hashable
    pieces: Callable[[], Iterator[bytes]]


class Answer(NamedTuple):
    """A processor's result; the caller applies the events after the response has been computed.

    Attributes:
        is_logged_first: Whether ``response`` waits until all events are in the log, for an operator's change. If the
            log does not accept them, the peer receives SYSTEM_BUSY instead.
        options: Changes of the server's options, which take effect once all events are in the log. After SYSTEM_BUSY
            they never take effect, even if the log receives the events later: the operator must repeat request 318.
        refusal: Reason for a denied permission, for the server's log; "" if none was denied.
        depends_on: The same request has the same answer and effect until this changes; None if unknown, so that the
            answer is not cached. Only answers to route queries (105) and to brokers' heartbeats are ever cached.
        long: The body of ``response``, if it may take long to compute.
        undecoded: A body that takes long to decode. There is no answer yet: process the request again with
            ``Call.decoded``.
        is_postponed: Whether the request must wait for room in the log. There is no answer yet: process it again.
        alive: The broker whose registration is ``undecoded`` or ``is_postponed``; it is alive.
    """

    response: RemotingCommand
    accepted: tuple[Accepted, ...] = ()
    is_logged_first: bool = False
    options: OptionChanges = _NO_CHANGES
    refusal: str = ""
    depends_on: Dependency | None = None
    long: LongBody | None = None
    undecoded: RegistrationBody | None = None
    is_postponed: bool = False
    alive: LeaseKey | None = None


def operator_change(response: RemotingCommand, *events: AcceptedEvent, options: OptionChanges = _NO_CHANGES) -> Answer:
    """Return the answer to an operator's change; ``response`` waits until all events, if any, are in the log."""
    accepted = tuple(Accepted(event, event) for event in events)
    return Answer(response, accepted, is_logged_first=bool(events), options=options)


Processor = Callable[[NameServer, Call], Answer]
Processors = Mapping[RequestCode, Processor]
