"""Scenarios: short lists of steps that are executed at both servers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.differential.broker_requests import Broker
from tests.differential.request import Request


@dataclass(frozen=True, slots=True)
class Ask:
    """Send requests over a connection, all before the first answer is read, and compare the answers.

    Attributes:
        differs: Name of the listed difference that each answer must show, possibly after a short time.
        has: Repeat the request until the Java server's answer contains this text.
    """

    requests: tuple[Request, ...]
    over: str
    differs: str = ""
    has: str = ""


@dataclass(frozen=True, slots=True)
class Close:
    """Close connections; waits until both servers have removed the brokers in ``gone``."""

    labels: tuple[str, ...]
    gone: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class SendRaw:
    """Send bytes after which both servers must close the connection without an answer."""

    data: bytes
    over: str


@dataclass(frozen=True, slots=True)
class Expire:
    """Wait until both servers have expired a silent broker, and check its connection.

    Attributes:
        is_kept_here: Whether namesrv-stream still answers over the connection; the Java server always closes it.
    """

    broker: Broker
    over: str
    is_kept_here: bool


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection that begins with the given bytes."""

    preamble: bytes
    over: str


Step = Ask | Close | SendRaw | Expire | Connect


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario.

    Attributes:
        name: Unique name that states the behaviour.
        restore: Steps that are always executed at the end, to restore options.
        is_observed: False if the states of the servers differ on purpose; then only answers to the steps are compared.
        spoils_java: Java keeps entries of the scenario forever, which break some lists, so it runs after all others.
    """

    name: str
    steps: tuple[Step, ...]
    restore: tuple[Request, ...] = ()
    is_observed: bool = True
    spoils_java: bool = False


def scenario(
    name: str,
    *steps: Step,
    restore: Sequence[Request] = (),
    is_observed: bool = True,
    spoils_java: bool = False,
) -> Scenario:
    return Scenario(name, steps, tuple(restore), is_observed, spoils_java)


def ask(*requests: Request, over: str = "x", differs: str = "", has: str = "") -> Ask:
    return Ask(requests, over, differs, has)


def close(*labels: str, gone: Iterable[Broker] = ()) -> Close:
    return Close(labels, tuple(gone))


def closed_after(data: bytes, *, over: str = "broken") -> SendRaw:
    return SendRaw(data, over)


def expire(broker: Broker, *, over: str, is_kept_here: bool = False) -> Expire:
    return Expire(broker, over, is_kept_here)


def connect(preamble: bytes, *, over: str) -> Connect:
    return Connect(preamble, over)
