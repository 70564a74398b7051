"""Unmodified mqadmin, producers and consumers of RocketMQ 5.3.3, run in one JVM that lives as long as the tests.

Every name-server address is an argument, so that the same command can be given to the Java NameServer and to ours.
"""

import json
import queue
import re
import subprocess
import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.jvm import JAVA_SOURCES, java_tool, rocketmq_jars, rocketmq_jvm

START_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 60.0


class MqadminError(Exception):
    """mqadmin printed a stack trace: the name server or a broker refused, or did not answer.

    Attributes:
        output: All that it printed.
        code: Response code that the server gave; None if there was no answer.
    """

    def __init__(self, args: Sequence[str], output: str) -> None:
        self.output = output
        found = re.search(r"CODE: (\d+)", output)
        self.code = int(found[1]) if found else None
        super().__init__(f"mqadmin {' '.join(args)}: {output}")


class PeerError(Exception):
    """A producer or consumer failed; the text is its Java stack trace."""


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One broker in the output of ``mqadmin clusterList``."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str
    version: str
    """Empty if the broker itself did not answer mqadmin."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a message was stored or came from."""

    broker_name: str
    queue_id: int
    queue_offset: int


class RocketmqPeers:
    """The JVM; a context manager. Compiles its program first. One command at a time.

    Args:
        work_dir: Receives the compiled classes and the log.
    """

    def __init__(self, work_dir: Path) -> None:
        self._classes = work_dir / "classes"
        self._process = rocketmq_jvm(
            "rocketmq-peers",
            "RocketmqPeers",
            [],
            work_dir,
            heap_mb=192,
            log_level="OFF",
            extra_classes=self._classes,
            piped=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        """Compile and start."""
        self._classes.mkdir(parents=True, exist_ok=True)
        classpath = ":".join(map(str, rocketmq_jars()))
        source = JAVA_SOURCES / "RocketmqPeers.java"
        subprocess.run(
            [java_tool("javac"), "-nowarn", "-proc:none", "-cp", classpath, "-d", str(self._classes), str(source)],
            check=True,
        )
        self._process.start()
        threading.Thread(target=self._collect_answers, name="rocketmq-peers-answers", daemon=True).start()
        self._next_answer(START_TIMEOUT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the JVM."""
        self._process.close()

    def ask(self, request: Mapping[str, object], timeout_s: float = COMMAND_TIMEOUT_S) -> dict[str, Any]:
        """Have the program do something.

        Args:
            request: ``do`` and what that needs; see ``RocketmqPeers.java``.
            timeout_s: Seconds to wait for the answer.

        Returns:
            The answer.

        Raises:
            PeerError: It failed.
            AssertionError: The JVM ended, or did not answer in time and is of no more use.
        """
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._next_answer(timeout_s)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _collect_answers(self) -> None:
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _next_answer(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"RocketmqPeers did not answer within {timeout_s:g} s") from None
        assert line, f"RocketmqPeers ended: {self._process.log_text()}"
        answer: dict[str, Any] = json.loads(line)
        return answer


class Mqadmin:
    """The ``mqadmin`` command, through its own entry point ``MQAdminStartup.main``."""

    def __init__(self, peers: RocketmqPeers) -> None:
        self._peers = peers

    def run(self, *args: str) -> str:
        """Run one sub-command, such as ``run("topicList", "-n", namesrv_addr)``.

        Returns:
            What it prints on standard output.

        Raises:
            MqadminError: It printed a stack trace instead.
        """
        output, errors = self._run(args)
        if "Exception" in errors:
            raise MqadminError(args, output + errors)
        return output

    def _run(self, args: Sequence[str]) -> tuple[str, str]:
        answer = self._peers.ask({"do": "mqadmin", "args": list(args)})
        return answer["output"], answer["errors"]

    def cluster_list(self, namesrv_addr: str) -> tuple[ClusterRow, ...]:
        """Brokers as ``mqadmin clusterList`` shows them, by cluster, name and id.

        A broker that does not answer mqadmin (frozen, or in its first second) is listed without a version, and a frozen
        one makes the command wait for it.

        Raises:
            MqadminError: The name server refused or did not answer.
        """
        args = ("clusterList", "-n", namesrv_addr)
        output, errors = self._run(args)
        rows = [line.split() for line in output.splitlines() if line.strip()]
        if not rows or rows[0][0] != "#Cluster":
            raise MqadminError(args, output + errors)
        return tuple(
            ClusterRow(cluster, name, int(broker_id), addr, version if version.startswith("V") else "")
            for cluster, name, broker_id, addr, version, *_ in rows[1:]
        )

    def topic_route(self, namesrv_addr: str, topic: str) -> dict[str, Any] | None:
        """The route as ``mqadmin topicRoute`` shows it.

        Returns:
            TopicRouteData as decoded JSON; None if the topic has no route (response code 17, TOPIC_NOT_EXIST).

        Raises:
            MqadminError: Another failure.
        """
        try:
            printed = self.run("topicRoute", "-n", namesrv_addr, "-t", topic)
        except MqadminError as error:
            if error.code == 17:
                return None
            raise
        # fastjson's own form of a map with numbers for keys, which is not JSON: {0:"127.0.0.1:10911"}.
        route: dict[str, Any] = json.loads(re.sub(r"([{,]\s*)(-?\d+)(\s*:)", r'\1"\2"\3', printed))
        return route

    def topic_list(self, namesrv_addr: str) -> frozenset[str]:
        """Topic names as ``mqadmin topicList`` shows them."""
        return frozenset(self.run("topicList", "-n", namesrv_addr).split())

    def create_topic(self, namesrv_addr: str, broker_addr: str, topic: str, *, queues: int = 4) -> None:
        """Create a topic on one broker; the broker registers it with its name servers."""
        counts = ("-r", str(queues), "-w", str(queues))
        self.run("updateTopic", "-n", namesrv_addr, "-b", broker_addr, "-t", topic, *counts)


class JavaClient:
    """A producer and a consumer of rocketmq-client."""

    def __init__(self, peers: RocketmqPeers) -> None:
        self._peers = peers

    def produce(
        self, namesrv_addr: str, topic: str, bodies: Sequence[str], *, send_timeout_s: float = 3
    ) -> tuple[Placed, ...]:
        """Send messages, one after the other.

        Raises:
            PeerError: One was not stored.
        """
        answer = self._peers.ask(
            {
                "do": "produce",
                "namesrv_addr": namesrv_addr,
                "topic": topic,
                "bodies": list(bodies),
                "send_timeout_ms": int(send_timeout_s * 1000),
            }
        )
        if bad := [sent for sent in answer["sent"] if sent["status"] != "SEND_OK"]:
            raise PeerError(f"not stored well: {bad}")
        return tuple(_placed(sent) for sent in answer["sent"])

    def consume(
        self, namesrv_addr: str, topic: str, bodies: Collection[str], *, group: str = "", timeout_s: float = 30
    ) -> dict[str, Placed]:
        """Subscribe and receive until certain messages have come or the time has passed.

        Args:
            namesrv_addr: Name servers.
            topic: Topic to subscribe to, from its first message.
            bodies: Messages to wait for.
            group: Consumer group; a new one if not given.
            timeout_s: Seconds to wait for them.

        Returns:
            Where each message was, by body; others of the topic included, some missing if the time has passed.
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
            Names of the brokers they went through.

        Raises:
            PeerError: One could not be sent.
            AssertionError: One did not arrive in time.
        """
        bodies = [str(uuid.uuid4()) for _ in range(count)]
        sent = self.produce(namesrv_addr, topic, bodies)
        missing = set(bodies) - self.consume(namesrv_addr, topic, bodies, timeout_s=timeout_s).keys()
        assert not missing, f"{len(missing)} of {count} messages did not arrive within {timeout_s:g} s"
        return frozenset(placed.broker_name for placed in sent)


def _placed(message: Mapping[str, Any]) -> Placed:
    return Placed(message["broker_name"], message["queue_id"], message["queue_offset"])
