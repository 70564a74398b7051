"""A JVM that runs unmodified parts of RocketMQ 5.3.3 for all tests, and the interface to mqadmin.

Every name-server address is an argument, so that a command can address the Java NameServer or namesrv-stream.
"""

import json
import queue
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.jvm import JAVA_SOURCES, java_tool, rocketmq_jars, rocketmq_jvm
from tests.support.processes import Process

START_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 60.0

# The lines of a Java stack trace that are neither frames nor the number of further frames.
_EXPLAINS = re.compile(r"(?!\s+at |\s+\.\.\. \d+ (?:common frames|more)).*\S")


class MqadminError(Exception):
    """mqadmin printed a stack trace: the name server or a broker refused, or did not answer.

    Attributes:
        output: Its whole output.
        code: Response code of the server; None if there was no answer.
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


class RocketmqPeers:
    """The JVM, which executes one command at a time; a context manager that compiles its program first.

    Args:
        work_dir: Folder for the compiled classes and the log.
        properties: System properties, such as ``tls.enable``.
    """

    def __init__(self, work_dir: Path, properties: Mapping[str, str] | None = None) -> None:
        self.work_dir = work_dir
        self._classes = work_dir / "classes"
        self._process = rocketmq_jvm(
            "rocketmq-peers",
            "RocketmqPeers",
            [],
            work_dir,
            heap_mb=192,
            log_level="OFF",
            # Some commands write files to this folder.
            properties={"java.io.tmpdir": str(work_dir), **(properties or {})},
            extra_classes=self._classes,
            piped=True,
        )
        self._answers: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        """Compile and start."""
        self._classes.mkdir(parents=True, exist_ok=True)
        classpath = ":".join(map(str, rocketmq_jars()))
        javac = [java_tool("javac"), "-nowarn", "-proc:none", "-cp", classpath, "-sourcepath", str(JAVA_SOURCES)]
        subprocess.run([*javac, "-d", str(self._classes), str(JAVA_SOURCES / "RocketmqPeers.java")], check=True)
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
        """Send a request to the program and wait for its answer.

        Args:
            request: ``do`` and its arguments; see ``RocketmqPeers.java``.
            timeout_s: Seconds to wait for the answer.

        Returns:
            The answer.

        Raises:
            PeerError: The request failed.
            AssertionError: The JVM ended, or did not answer in time and cannot be used any more.
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
            Its standard output.

        Raises:
            MqadminError: It printed a stack trace instead.
        """
        output, errors = self._run(args)
        if "Exception" in errors:
            raise MqadminError(args, output + errors)
        return output

    def command_names(self) -> frozenset[str]:
        """Return every sub-command in mqadmin's own list."""
        return frozenset(self._peers.ask({"do": "commands"})["names"])

    def outcome(self, *args: str) -> str:
        """Run one sub-command; a failure raises nothing.

        Returns:
            Its output, and the lines of each stack trace that explain the error.
        """
        output, errors = self._run(args)
        return output + "".join(f"! {line}\n" for line in errors.splitlines() if _EXPLAINS.match(line))

    @contextmanager
    def signing(self, access_key: str, secret_key: str) -> Iterator[None]:
        """Let mqadmin sign its requests, configured by the same file as for users."""
        path = self._peers.work_dir / "conf" / "tools.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"accessKey: {access_key}\nsecretKey: {secret_key}\n")
        try:
            yield
        finally:
            path.unlink()

    def _run(self, args: Sequence[str]) -> tuple[str, str]:
        answer = self._peers.ask({"do": "mqadmin", "args": list(args)})
        return answer["output"], answer["errors"]

    def cluster_list(self, namesrv_addr: str) -> tuple[ClusterRow, ...]:
        """Return the brokers as ``mqadmin clusterList`` shows them, by cluster, name and id.

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
        """Return the route as ``mqadmin topicRoute`` shows it.

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
        # fastjson writes a map with numeric keys as {0:"127.0.0.1:10911"}, which is not JSON.
        route: dict[str, Any] = json.loads(re.sub(r"([{,]\s*)(-?\d+)(\s*:)", r'\1"\2"\3', printed))
        return route

    def topic_list(self, namesrv_addr: str) -> frozenset[str]:
        """Return the topic names as ``mqadmin topicList`` shows them."""
        return frozenset(self.run("topicList", "-n", namesrv_addr).split())

    def create_topic(self, namesrv_addr: str, broker_addr: str, topic: str, *, queues: int = 4) -> None:
        """Create a topic on one broker; the broker registers it with its name servers."""
        counts = ("-r", str(queues), "-w", str(queues))
        self.run("updateTopic", "-n", namesrv_addr, "-b", broker_addr, "-t", topic, *counts)


def mqadmin_process(args: Sequence[str], work_dir: Path) -> Process:
    """Return a process for a sub-command that does not end by itself, in its own JVM; its log has the output."""
    return rocketmq_jvm(
        "mqadmin",
        "org.apache.rocketmq.tools.command.MQAdminStartup",
        args,
        work_dir,
        heap_mb=128,
        log_level="INFO",
        properties={"java.io.tmpdir": str(work_dir)},
    )
