"""What a processor may look at, and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from namesrv_stream.processor.route_answers import RouteAnswers
from namesrv_stream.remoting.codes import RequestCode
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.route.events import BrokerEvent, Origin
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import Holder
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.view import RouteView


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of RocketMQ's NamesrvConfig that change answers, under its names and with its defaults."""

    support_acting_master: bool = False
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    full_registration_interval_ms: int = 86_400_000


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
    """

    settled: dict[LeaseKey, Settled] = field(default_factory=dict)
    full_due_ms: dict[LeaseKey, int] = field(default_factory=dict)
    wanted: set[LeaseKey] = field(default_factory=set)

    def forget(self, key: LeaseKey) -> None:
        """The broker process is gone."""
        self.settled.pop(key, None)
        self.full_due_ms.pop(key, None)
        self.wanted.discard(key)


@dataclass(slots=True)
class NameServer:
    """The state behind all answers of one server."""

    view: RouteView
    answers: RouteAnswers
    options: Options
    memory: RegistrationMemory = field(default_factory=RegistrationMemory)

    @property
    def table(self) -> RouteTable:
        return self.view.table


class Call(NamedTuple):
    """One request as it reached this server; ``now_ms`` is monotonic."""

    request: RemotingCommand
    origin: Origin
    now_ms: int


class Accepted(NamedTuple):
    """An event to act on: ``applied`` changes the view at once (None: nothing to change), ``logged`` goes to Kafka."""

    logged: BrokerEvent
    applied: BrokerEvent | None


class Answer(NamedTuple):
    """A processor's result; the events apply after the response was made."""

    response: RemotingCommand
    accepted: tuple[Accepted, ...] = ()


Processor = Callable[[NameServer, Call], Answer]
Processors = Mapping[RequestCode, Processor]
