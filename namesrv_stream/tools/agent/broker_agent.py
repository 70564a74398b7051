"""The agent: simulated brokers that start one after another and are stopped or killed together."""

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from namesrv_stream.clock import Clock, SystemClock
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.tools.agent.agent_config import AgentConfig, BrokerIdentity
from namesrv_stream.tools.agent.name_server_link import NameServerLink, Tally
from namesrv_stream.tools.agent.registration import (
    DataVersion,
    RegistrationBody,
    TopicConfig,
    own_topics,
    register_request,
    unregister_request,
)

logger = logging.getLogger(__name__)

_FIRST_VERSION: Final = 0
# Up to this many brokers each event gets its line; more are told by the status line, and by all lines with DEBUG.
MAX_TOLD_BROKERS: Final = 20
_POLL_S: Final = 0.01
_UNREGISTER_AT_ONCE: Final = 200  # brokers; each may need a connection


class SimulatedBroker:
    """Registers with all name servers in parallel: at the start, every interval, and at once after a change."""

    def __init__(
        self,
        config: AgentConfig,
        identity: BrokerIdentity,
        topics: Iterable[str],
        tally: Tally,
        clock: Clock,
        story_level: int,
    ) -> None:
        """Do nothing yet; see ``AgentConfig`` and ``NameServerLink`` for the arguments."""
        self.identity = identity
        self._config = config
        self._clock = clock
        self._story_level = story_level
        self._topics = own_topics(identity) if config.system_topics else {}
        self._topics |= {topic: TopicConfig(config.queues, config.queues) for topic in topics}
        self._data_version = DataVersion(_FIRST_VERSION, clock.now_ms())
        self._body: RegistrationBody | None = None  # of the topics and version above
        self._links = [
            NameServerLink(config, identity.broker_name, addr, self._registration, tally, story_level)
            for addr in config.name_server_addrs
        ]

    @property
    def data_version(self) -> DataVersion:
        """Version of the topic table."""
        return self._data_version

    @property
    def topics(self) -> frozenset[str]:
        """Names of all its topics."""
        return frozenset(self._topics)

    @property
    def is_registered(self) -> bool:
        """Whether all name servers hold its newest registration over the connections that there are."""
        return all(link.is_registered for link in self._links)

    async def run(self, first_delay_ms: float, first_interval_ms: float) -> None:
        """Be a broker until cancelled.

        Args:
            first_delay_ms: Milliseconds before it appears.
            first_interval_ms: From its first registration to the second; later ones follow the configured interval.
        """
        await asyncio.sleep(first_delay_ms / 1000)
        async with asyncio.TaskGroup() as tasks:
            for link in self._links:
                tasks.create_task(link.run())
            tasks.create_task(self._heartbeat(first_interval_ms))

    async def register(self) -> int:
        """Register with all name servers in parallel and wait for them, but no longer than the configured timeout.

        Returns:
            How many accepted it.
        """
        wishes = [link.request_registration() for link in self._links]
        # The latch of BrokerOuterAPI.registerBrokerAll.
        done, _ = await asyncio.wait(wishes, timeout=self._config.register_timeout_ms / 1000)
        return sum(wish.result() for wish in done)

    async def change(self, add: Iterable[str], remove: Iterable[str], queues: int) -> int:
        """Add and remove topics, and register the new table at once.

        Returns:
            How many name servers accepted it.
        """
        for topic in remove:
            self._topics.pop(topic, None)
        self._topics |= {topic: TopicConfig(queues, queues) for topic in add}
        self._data_version = self._data_version.next(self._clock.now_ms())
        self._body = None
        accepted = await self.register()
        logger.log(
            self._story_level,
            "topics changed broker=%s topics=%d data_version=%d name_servers=%d/%d",
            self.identity.broker_name,
            len(self._topics),
            self._data_version.counter,
            accepted,
            len(self._links),
        )
        return accepted

    async def unregister(self) -> int:
        """Leave all name servers in parallel; call it when ``run`` has ended.

        Returns:
            How many know nothing of it now, as far as can be told.
        """
        request = unregister_request(self.identity)
        return sum(await asyncio.gather(*(link.unregister(request) for link in self._links)))

    def abort(self) -> None:
        """Drop all connections."""
        for link in self._links:
            link.abort()

    async def _heartbeat(self, first_interval_ms: float) -> None:
        """Register every interval. It never waits for answers: each link sees to its own."""
        delay_ms = first_interval_ms
        while True:
            await asyncio.sleep(delay_ms / 1000)
            for link in self._links:
                link.request_registration()
            jitter = self._config.jitter
            delay_ms = self._config.heartbeat_interval_ms * random.uniform(1 - jitter, 1 + jitter)

    def _registration(self) -> RemotingCommand:
        if self._body is None:
            self._body = RegistrationBody.of(self._data_version, self._topics)
        return register_request(self.identity, self._config.timeout_ms, self._body.at(self._clock.now_ms()))


class BrokerAgent:
    """Simulated brokers on the running event loop.

    ``start``, then ``stop`` (which unregisters) or ``kill`` (which does not); it is of no use after.
    """

    def __init__(self, config: AgentConfig, clock: Clock | None = None) -> None:
        """Do nothing yet; must be called on the event loop that it is to run on.

        Args:
            config: What to simulate.
            clock: Source of time stamps; the machine's if not given.

        Raises:
            ConfigError: The addresses do not have room for that many brokers.
        """
        self.tally = Tally()
        self._config = config
        level = logging.INFO if config.brokers <= MAX_TOLD_BROKERS else logging.DEBUG
        clock = clock or SystemClock()
        self._brokers = {
            identity.broker_name: SimulatedBroker(config, identity, config.topics_of(index), self.tally, clock, level)
            for index, identity in enumerate(config.identities())
        }
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def brokers(self) -> Mapping[str, SimulatedBroker]:
        """The brokers by name."""
        return self._brokers

    @property
    def is_registered(self) -> bool:
        """Whether every broker is registered at every name server."""
        return self.tally.registered == self.tally.links

    def start(self) -> None:
        """Let the brokers appear, spread over the configured time. Returns at once; see ``wait_registered``."""
        loop = asyncio.get_running_loop()
        interval_ms = self._config.heartbeat_interval_ms
        gap_ms = self._config.spread_ms / len(self._brokers)
        for index, (name, broker) in enumerate(self._brokers.items()):
            # A fleet started together would register in the same few seconds of each interval for a long time.
            first_interval_ms = interval_ms if len(self._brokers) == 1 else interval_ms * random.uniform(0.1, 1.0)
            self._tasks.append(loop.create_task(broker.run(index * gap_ms, first_interval_ms), name=name))

    async def wait_registered(self, timeout_ms: int) -> bool:
        """Wait until every broker is registered at every name server.

        Args:
            timeout_ms: Milliseconds to wait at most.

        Returns:
            Whether that came to be.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while not self.is_registered:
                    self.raise_if_broken()
                    await asyncio.sleep(_POLL_S)
        return self.is_registered

    async def change(
        self,
        broker_name: str | None = None,
        *,
        add: Iterable[str] = (),
        remove: Iterable[str] = (),
        queues: int | None = None,
    ) -> int:
        """Add and remove topics on one broker or all; each gets a new DataVersion and registers at once.

        Args:
            broker_name: The broker; None for all of them.
            add: Topics to add, or to give another number of queues.
            remove: Topics to remove. Name servers keep those that a registration merely omits, unless they are told to
                delete them.
            queues: Queues of the added topics; those of the configuration if not given.

        Returns:
            How many registrations were accepted.

        Raises:
            KeyError: There is no such broker.
        """
        chosen = list(self._brokers.values()) if broker_name is None else [self._brokers[broker_name]]
        counts = await asyncio.gather(
            *(broker.change(tuple(add), tuple(remove), queues or self._config.queues) for broker in chosen)
        )
        return sum(counts)

    async def stop(self) -> int:
        """Unregister all brokers at all name servers and close the connections.

        Returns:
            How many links, of ``tally.links``, left nothing behind: the server took note or never heard of the broker.
        """
        await self._end_tasks()
        gate = asyncio.Semaphore(_UNREGISTER_AT_ONCE)

        async def unregister(broker: SimulatedBroker) -> int:
            async with gate:
                return await broker.unregister()

        return sum(await asyncio.gather(*(unregister(broker) for broker in self._brokers.values())))

    async def kill(self) -> None:
        """Drop all connections without a word, as the death of the process would."""
        for broker in self._brokers.values():
            broker.abort()
        await self._end_tasks()
        for broker in self._brokers.values():
            broker.abort()  # connections made in between

    def raise_if_broken(self) -> None:
        """Raise the exception that ended a broker, which is always a mistake in this program."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()
