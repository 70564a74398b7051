"""The running product and the brokers on it, with the waiting and measuring that the scenes need."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from namesrv_stream.client import NameServers, topic_route
from namesrv_stream.demo.history import History
from namesrv_stream.demo.processes import DemoProcess, up_arguments
from namesrv_stream.demo.story import Story
from namesrv_stream.errors import NamesrvStreamError, TopicNotExist

CLUSTER: Final = "demo"
TOPIC: Final = "orders"

_READY: Final = re.compile(r"READY remoting=(\S+) http=(\S+) kafka=(\S+) data=(.+)")
_STAMP: Final = re.compile(r"^\[ *[\d.]+ s\] ")  # the story has its own
_JOB_READY: Final = "committed its first batch"
_START_S: Final = 180.0
_STOP_S: Final = 15.0
_POLL_S: Final = 0.02
_FIRST_PORT: Final = 20_911  # of the brokers' addresses, at which nothing listens


class StepFailed(NamesrvStreamError):
    """Something that was announced did not happen."""


class StartFailed(StepFailed):
    """The product did not start.

    Attributes:
        exit_code: That of `up`.
    """

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code  # type: ignore[misc] # of this one error


@dataclass(slots=True)
class Stage:
    """What the scenes act on.

    Attributes:
        brokers: Running broker agents by broker name.
        name_server: Its address, once it runs.
    """

    story: Story
    data_dir: Path
    history: History
    brokers: dict[str, DemoProcess] = field(default_factory=dict)
    name_server: str = ""
    up: DemoProcess | None = None
    servers: NameServers | None = None
    is_job_ready: bool = False

    async def start_up(self) -> None:
        """Start Kafka, the job and the server, and wait for READY.

        Raises:
            StartFailed: They gave up; carries the reason that they gave.
            StepFailed: They did not come up in time.
        """
        up = self.up = await DemoProcess.start("up", up_arguments(self.data_dir), self._hear_up)
        await self.measure(lambda: bool(self.name_server) or up.exit_code is not None, _START_S, "READY")
        if not self.name_server:
            code = await up.stop(_STOP_S)
            reasons = [line.removeprefix("error: ") for line in up.lines if line.startswith("error: ")]
            raise StartFailed(reasons[-1] if reasons else f"`up` ended with {code}: {up.lines[-1:]}", code)
        self.servers = NameServers([self.name_server])

    async def start_broker(self, name: str, *flags: str) -> None:
        """Start a broker agent that serves the topic."""
        addr = f"127.0.0.1:{_FIRST_PORT + 10 * len(self.brokers)}"
        identity = ("--cluster", CLUSTER, "--name", name, "--addr", addr)
        arguments = ["agent", "-n", self.name_server, *identity, "--topics", "0", "--topic", TOPIC, *flags]
        self.brokers[name] = await DemoProcess.start(name, arguments)

    async def serving(self) -> frozenset[str]:
        """Names of the brokers that the name server routes the topic to at this moment."""
        assert self.servers is not None, "the name server runs"
        try:
            return (await topic_route(self.servers, TOPIC)).broker_names
        except TopicNotExist:
            return frozenset()

    async def until_serving(self, names: set[str], limit_s: float) -> float:
        """Wait until exactly these brokers serve the topic.

        Returns:
            Seconds that it took.

        Raises:
            StepFailed: It took longer than ``limit_s``.
        """

        async def is_so() -> bool:
            return await self.serving() == names

        return await self.measure(is_so, limit_s, f"the route to be {', '.join(sorted(names)) or 'gone'}")

    async def measure(self, condition: Callable[[], bool | Awaitable[bool]], limit_s: float, what: str) -> float:
        """Ask every 20 ms until a condition holds.

        Returns:
            Seconds that it took.

        Raises:
            StepFailed: It took longer than ``limit_s``.
        """
        began = time.monotonic()
        while True:
            answer = condition()
            holds = answer if isinstance(answer, bool) else await answer
            took_s = time.monotonic() - began
            if holds and took_s <= limit_s:
                return took_s
            if took_s > limit_s:
                raise StepFailed(f"waited {took_s:.1f} s for {what}; the limit is {limit_s:g} s")
            await asyncio.sleep(_POLL_S)

    async def close(self) -> list[str]:
        """End everything.

        Returns:
            What did not end well, for people; empty if all did.
        """
        complaints = []
        if self.servers is not None:
            await self.servers.close()
        for broker in [broker for broker in self.brokers.values() if broker.exit_code is None]:
            if code := await broker.stop(_STOP_S):
                complaints.append(f"{broker.name} ended with {code}: {broker.lines[-1:]}")
        if self.up is not None and self.name_server:
            had_ended = self.up.exit_code is not None
            code = await self.up.stop(_STOP_S)
            if code or had_ended:
                complaints.append(f"`up` ended with {code}: {self.up.lines[-1:]}")
        elif self.up is not None:
            await self.up.stop(_STOP_S)
        return complaints

    def _hear_up(self, line: str) -> None:
        if match := _READY.fullmatch(line):
            self.name_server = match[1]
        elif not line.startswith("error: "):
            self.is_job_ready = self.is_job_ready or _JOB_READY in line
            self.story.note(f"up: {_STAMP.sub('', line)}")
