"""Unmodified producers and consumers of rocketmq-client 5.3.3."""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.rocketmq_peers import COMMAND_TIMEOUT_S, PeerError, RocketmqPeers


@dataclass(frozen=True, slots=True)
class Placed:
    """The place where a message is stored."""

    broker_name: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A send or a route query that failed; times as ``time.monotonic()``."""

    begun_s: float
    ended_s: float
    error: str


@dataclass(slots=True)
class Flow:
    """What a producer and a consumer observed while they ran; complete when they end."""

    sent: int = 0
    missing: int = 0
    """Sent, acknowledged, and not received."""
    queries: int = 0
    slowest_query_s: float = 0.0
    send_failures: list[Failure] = field(default_factory=list)
    query_failures: list[Failure] = field(default_factory=list)


class JavaClient:
    """A producer and a consumer; new ones for each call."""

    def __init__(self, peers: RocketmqPeers) -> None:
        self._peers = peers

    def produce(
        self, namesrv_addr: str, topic: str, bodies: Sequence[str], *, key: str = "", send_timeout_s: float = 3
    ) -> tuple[Placed, ...]:
        """Send messages, one after the other, all with the same key.

        Raises:
            PeerError: A message was not stored.
        """
        answer = self._peers.ask(
            {
                "do": "produce",
                "namesrv_addr": namesrv_addr,
                "topic": topic,
                "bodies": list(bodies),
                "key": key,
                "send_timeout_ms": int(send_timeout_s * 1000),
            }
        )
        if bad := [sent for sent in answer["sent"] if sent["status"] != "SEND_OK"]:
            raise PeerError(f"not stored correctly: {bad}")
        return tuple(_placed(sent) for sent in answer["sent"])

    def consume(
        self, namesrv_addr: str, topic: str, bodies: Collection[str], *, group: str = "", timeout_s: float = 30
    ) -> dict[str, Placed]:
        """Subscribe and receive until certain messages have arrived or the time has passed.

        Args:
            namesrv_addr: Name servers.
            topic: Topic to subscribe to, from its first message.
            bodies: Messages to wait for.
            group: Consumer group; a new one if not given.
            timeout_s: Seconds to wait for them.

        Returns:
            The place of each received message of the topic, by body; some are missing if the time has passed.
        """
        answer = self._peers.ask(
            {
                "do": "consume",
                "namesrv_addr": namesrv_addr,
                "topic": topic,
                "group": group or f"tests_{uuid.uuid4().hex}",
                "bodies": list(bodies),
                "timeout_ms": int(timeout_s * 1000),
            },
            COMMAND_TIMEOUT_S + timeout_s,
        )
        return {received["body"]: _placed(received) for received in answer["received"]}

    def exchange(self, namesrv_addr: str, topic: str, count: int = 20, *, timeout_s: float = 30) -> frozenset[str]:
        """Send new messages and receive every one of them.

        Returns:
            Names of the brokers that stored them.

        Raises:
            PeerError: A message could not be sent.
            AssertionError: A message did not arrive in time.
        """
        bodies = [str(uuid.uuid4()) for _ in range(count)]
        sent = self.produce(namesrv_addr, topic, bodies)
        missing = set(bodies) - self.consume(namesrv_addr, topic, bodies, timeout_s=timeout_s).keys()
        assert not missing, f"{len(missing)} of {count} messages did not arrive within {timeout_s:g} s"
        return frozenset(placed.broker_name for placed in sent)

    def publish_queues(
        self,
        topic: str,
        *,
        namesrv_addr: str = "",
        namesrv_domain: str = "",
        subgroup: str = "nsaddr",
        unit_name: str = "",
    ) -> list[tuple[str, int]]:
        """Return the queues to which a producer would send: broker names and queue ids, in its order.

        Args:
            topic: The topic.
            namesrv_addr: Name servers.
            namesrv_domain: Instead, host and port of an HTTP server that lists them (``rocketmq.namesrv.domain``).
            subgroup: What the client asks that server for (``rocketmq.namesrv.domain.subgroup``).
            unit_name: The client's unit, which it appends to the subgroup.

        Raises:
            PeerError: The producer found no route.
        """
        by_http = {"namesrv_domain": namesrv_domain, "subgroup": subgroup, "unit_name": unit_name}
        where = by_http if namesrv_domain else {"namesrv_addr": namesrv_addr}
        answer = self._peers.ask({"do": "publish_queues", "topic": topic, **where})
        return [(queue["broker_name"], queue["queue_id"]) for queue in answer["queues"]]

    @contextmanager
    def flow(
        self,
        namesrv_addr: str,
        topic: str,
        *,
        group: str = "",
        interval_s: float = 0.05,
        timeout_s: float = 30,
        retries: bool = True,
        poll_interval_s: float = 1,
    ) -> Iterator[Flow]:
        """Send, receive and query the route repeatedly until the block ends.

        Args:
            namesrv_addr: Name servers.
            topic: An existing topic.
            group: Consumer group; a new one if not given.
            interval_s: Seconds between two messages, and between two queries; 0 for clients that only stay connected.
            timeout_s: Seconds to wait after the block until all sent messages have arrived.
            retries: Whether a send that failed is repeated at another broker, as clients do by default.
            poll_interval_s: How often the clients refresh their routes; 30 s by default in RocketMQ.
        """
        self._peers.ask(
            {
                "do": "start_flow",
                "namesrv_addr": namesrv_addr,
                "topic": topic,
                "group": group or f"tests_{uuid.uuid4().hex}",
                "interval_ms": int(interval_s * 1000),
                "retries": retries,
                "poll_interval_ms": int(poll_interval_s * 1000),
            }
        )
        flow = Flow()
        try:
            yield flow
        finally:
            answer = self._peers.ask(
                {"do": "stop_flow", "timeout_ms": int(timeout_s * 1000)}, COMMAND_TIMEOUT_S + timeout_s
            )
            flow.sent, flow.missing, flow.queries = answer["sent"], answer["missing"], answer["queries"]
            flow.slowest_query_s = answer["slowest_query_ms"] / 1000
            flow.send_failures = [_failure(each) for each in answer["send_failures"]]
            flow.query_failures = [_failure(each) for each in answer["query_failures"]]


def _failure(answer: Mapping[str, Any]) -> Failure:
    return Failure(answer["begun_ms"] / 1000, answer["ended_ms"] / 1000, answer["error"])


def _placed(message: Mapping[str, Any]) -> Placed:
    where = message["broker_name"], message["queue_id"], message["queue_offset"]
    return Placed(*where, message["msg_id"], message["offset_msg_id"])
