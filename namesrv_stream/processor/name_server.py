"""What a processor may look at, and what it gives back."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.processor.register_body import RegisterBrokerBody
from namesrv_stream.processor.route_answers import RouteAnswers
from namesrv_stream.remoting.codes import RequestCode
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.route.events import AcceptedEvent, Origin
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import Holder, LeaseKey
from namesrv_stream.route.server_view.route_view import RouteView
from namesrv_stream.route.table import RouteTable


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of RocketMQ's NamesrvConfig that change answers, under its names and with its defaults."""

    support_acting_master: bool = False
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    notify_min_broker_id_changed: bool = False
    full_registration_interval_ms: int = 86_400_000


#: Fields of ``Options`` to their new values. Not a whole ``Options``: by the time that a change is in the log, another
#: one may have changed the rest.
OptionChanges = Mapping[str, int | bool]
_NO_CHANGES: Final[OptionChanges] = MappingProxyType({})


class Settled(NamedTuple):
    """A registration that was folded into ``group`` and would not change it again."""

    group: BrokerGroup
    registration_hash: str
    holder: Holder


@dataclass(slots=True)
class RegistrationMemory:
    """What one server remembers of registrations, so that an unchanged one costs neither decoding nor logging.

    Attributes:
        settled: By broker process; valid while the view still has the very same group.
        full_due_ms: Monotonic time from which the process's next registration is logged in full.
        wanted: Processes of which the fold asked for the full body.
        closed: Processes whose connection was closed since they registered over it. They stay in the view until the
            fold has ended them; until they register over another connection, the server does not hear them.
    """

    settled: dict[LeaseKey, Settled] = field(default_factory=dict)
    full_due_ms: dict[LeaseKey, int] = field(default_factory=dict)
    wanted: set[LeaseKey] = field(default_factory=set)
    closed: dict[LeaseKey, Holder] = field(default_factory=dict)

    def forget(self, key: LeaseKey) -> None:
        """The broker process is gone."""
        self.settled.pop(key, None)
        self.full_due_ms.pop(key, None)
        self.wanted.discard(key)
        self.closed.pop(key, None)


class Peer(NamedTuple):
    """Who sent a request.

    Attributes:
        host: IP address of the socket's other end, without port; "" where unknown.
        is_proxied: The connection began with a PROXY preamble, so that ``host`` is a proxy's.
    """

    host: str
    is_proxied: bool


Networks = tuple[IPv4Network | IPv6Network, ...]


def networks_of(texts: Iterable[str]) -> Networks:
    """Networks by their CIDR notation; a lone address is a network of one.

    Raises:
        ValueError: One is none; the text names it.
    """
    return tuple(ip_network(text, strict=False) for text in texts)


_THIS_MACHINE: Final = networks_of(("127.0.0.0/8", "::1/128"))
_ANYBODY: Final = networks_of(("0.0.0.0/0", "::/0"))


@dataclass(frozen=True, slots=True)
class Access:
    """Who may change what an operator changes, and which of it at all.

    Attributes:
        trusted_networks: Peers in these need no signature, unless they come through a proxy.
        accounts: RocketMQ ACL accounts: AccessKey to secret.
        enable_config_update: Whether UPDATE_NAMESRV_CONFIG is served.
        broker_networks: Peers in these may say what brokers say without a signature, through a proxy too.
    """

    trusted_networks: Networks = _THIS_MACHINE
    accounts: Mapping[str, str] = field(default_factory=dict, repr=False)
    enable_config_update: bool = False
    broker_networks: Networks = _ANYBODY


@dataclass(slots=True)
class NameServer:
    """The state behind all answers of one server.

    Attributes:
        options: Changed by ``reconfigure`` only.
        started_ms: Monotonic time of the server's start.
        config: RocketMQ's keys to their configured values, as far as they have a meaning here; what can change at run
            time comes from ``options`` and the table instead (``namesrv_config.effective_config``).
    """

    view: RouteView
    answers: RouteAnswers
    options: Options
    memory: RegistrationMemory = field(default_factory=RegistrationMemory)
    access: Access = field(default_factory=Access)
    started_ms: int = 0
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> RouteTable:
        return self.view.table

    @property
    def drops_absent_topics(self) -> bool | None:
        """Whether a registration deletes the topics that it does not list; None where the log says nothing of it."""
        value = self.table.settings.get(("effective", "delete_topic_with_broker_registration"))
        return None if value is None else value == "true"

    def reconfigure(self, changes: OptionChanges) -> None:
        """Answer by other options from now on."""
        self.options = replace(self.options, **changes)  # type: ignore[arg-type] # names and types are OPTION_OF's
        self.answers.support_acting_master = self.options.support_acting_master


#: The body of a registration, or why it cannot be read.
DecodedBody = RegisterBrokerBody | BodyDecodeError


class Call(NamedTuple):
    """One request as it reached this server.

    Attributes:
        now_ms: Monotonic time.
        decoded: What ``broker.large_body`` asked for; None where the body is still to be decoded.
    """

    request: RemotingCommand
    origin: Origin
    now_ms: int
    peer: Peer = Peer("", False)
    decoded: DecodedBody | None = None


class Accepted(NamedTuple):
    """An event to act on: ``applied`` changes the view at once (None: nothing to change), ``logged`` goes to Kafka."""

    logged: AcceptedEvent
    applied: AcceptedEvent | None


class Dependency(NamedTuple):
    """What an answer depends on beside its request: the route of a topic, or the group of a broker name.

    The answer that depends on a broker also depends on the connection over which it was asked.
    """

    kind: Literal["topic", "broker"]
    name: str


class Answer(NamedTuple):
    """A processor's result; the events apply after the response was made.

    Attributes:
        is_logged_first: An operator's change: ``response`` goes out once all events are in the log, and SYSTEM_BUSY
            instead where the log does not take them.
        options: Changes of the server's options; they hold once all events are in the log. Where SYSTEM_BUSY was
            answered instead they never do, even if the log gets the events in the end: 318 is to be sent again.
        refusal: Why the peer may not ask this, for the server's log.
        depends_on: The same request has the same answer, and the same effect, until this changes; None if unknown.
    """

    response: RemotingCommand
    accepted: tuple[Accepted, ...] = ()
    is_logged_first: bool = False
    options: OptionChanges = _NO_CHANGES
    refusal: str = ""
    depends_on: Dependency | None = None


def operator_change(response: RemotingCommand, *events: AcceptedEvent, options: OptionChanges = _NO_CHANGES) -> Answer:
    """The answer to an operator's change: ``response`` goes out once all events are in the log, if there are any."""
    accepted = tuple(Accepted(event, event) for event in events)
    return Answer(response, accepted, is_logged_first=bool(events), options=options)


Processor = Callable[[NameServer, Call], Answer]
Processors = Mapping[RequestCode, Processor]
