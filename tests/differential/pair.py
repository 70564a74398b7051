"""The Java NameServer and namesrv-stream side by side: every request is sent to both."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.differential.wire import Answer, Connection, Frame
from tests.support.rocketmq import JavaNameServer
from tests.support.stack import Stack

#: Time limit until the server has the fold's rows of all accepted events.
_FOLD_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.01
#: Label of the connections for queries that belong to no step.
OBSERVER: Final = "observer"

#: Long enough that no broker expires and no connection is idle while the tests run; other tests cover expiry.
_IDLE_S: Final = 3_600
#: Changes of the configuration at run time are enabled, as always in Java. The guard is off, because Java has none.
_OURS: Final[Mapping[str, str | int]] = {"admin__enable_config_update": "true", "liveness__guard_share_percent": 100}


class Both(NamedTuple):
    """The answers of both servers to one request."""

    java: Answer
    ours: Answer


class Session:
    """Labelled connections to both servers for one scenario; they are opened at first use.

    Args:
        java_addr: ``host:port`` of the Java NameServer.
        our_addr: ``host:port`` of namesrv-stream.
    """

    def __init__(self, java_addr: str, our_addr: str) -> None:
        self._addrs = (java_addr, our_addr)
        self._connections: dict[str, tuple[Connection, Connection]] = {}

    def connect(self, label: str, preamble: bytes = b"") -> tuple[Connection, Connection]:
        """Return the connections with a label."""
        if label not in self._connections:
            java, ours = self._addrs
            self._connections[label] = (Connection(java, preamble=preamble), Connection(ours, preamble=preamble))
        return self._connections[label]

    def ask(self, label: str, frames: Sequence[Frame]) -> list[Both]:
        """Send frames to both servers at once; returns the answers in order, none for oneway frames."""
        connections = self.connect(label)
        for connection in connections:
            connection.send(frames)
        java, ours = (connection.receive() for connection in connections)
        return [Both(*both) for both in zip(java, ours, strict=True)]

    def close(self, label: str) -> None:
        """Close the connections with a label, if there are any."""
        for connection in self._connections.pop(label, ()):
            connection.close()

    def close_all(self) -> None:
        for label in list(self._connections):
            self.close(label)


class Pair:
    """Both servers.

    Args:
        java_addr: ``host:port`` of the Java NameServer.
        our_addr: ``host:port`` of namesrv-stream.
        pending_events: Returns the number of accepted events that are not in the tables yet.
    """

    def __init__(self, java_addr: str, our_addr: str, pending_events: Callable[[], int]) -> None:
        self._addrs = (java_addr, our_addr)
        self._pending_events = pending_events
        self._numbers = itertools.count(1)

    def session(self) -> Session:
        """Return new connections for a scenario."""
        return Session(*self._addrs)

    def new_prefix(self) -> str:
        """Return a prefix that makes the names of one scenario unique."""
        return f"s{next(self._numbers)}_"

    def wait_for_fold(self) -> None:
        """Wait until the fold has processed all accepted events, so that namesrv-stream answers from the tables alone.

        Raises:
            AssertionError: The fold has not processed them within two minutes.
        """
        until(lambda: self._pending_events() == 0, _FOLD_TIMEOUT_S, "the fold has processed all accepted events")


def until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll until ``condition`` holds.

    Raises:
        AssertionError: The condition did not become true in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(_POLL_S)


def java_server(work_dir: Path) -> JavaNameServer:
    """A Java NameServer that expires no broker while the tests run."""
    properties: Mapping[str, str] = {"serverChannelMaxIdleTimeSeconds": str(_IDLE_S)}
    return JavaNameServer(work_dir, heap_mb=256, properties=properties)


def our_stack(data_dir: Path) -> Stack:
    """The whole product, configured to expire no broker either."""
    return Stack(data_dir, remoting__idle_timeout_ms=_IDLE_S * 1_000, **_OURS)
