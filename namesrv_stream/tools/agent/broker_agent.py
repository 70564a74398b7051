"""The agent: simulated brokers that start one after another and are stopped or killed together."""

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from typing import Final

from namesrv_stream.clock import Clock, SystemClock
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.tools.agent.name_server_link import NameServerLink, Tally
from namesrv_stream.tools.agent.simulated_broker import (
    AgentConfig,
    BrokerIdentity,
    DataVersion,
    RegistrationBody,
    TopicConfig,
    own_topics,
    register_request,
    unregister_request,
)

logger = logging.getLogger(__name__)

_FIRST_VERSION: Final = 0
# With up to this many brokers, every event is logged at INFO; with more, at DEBUG.
MAX_LOGGED_BROKERS: Final = 20
_UNREGISTER_AT_ONCE: Final = 200  # brokers; each may need a connection


class SimulatedBroker:
    """A broker that registers with all name servers in parallel: at its start, at intervals, and after every change."""

    def __init__(
        self,
        config: AgentConfig,
        identity: BrokerIdentity,
        topics: Iterable[str],
        tally: Tally,
        clock: Clock,
        event_level: int,
    ) -> None:
        """Prepare the broker; see ``AgentConfig`` and ``NameServerLink`` for the arguments."""
        self.identity = identity
        self._config = config
        self._clock = clock
        self._event_level = event_level
        self._topics = own_topics(identity) if config.system_topics else {}
        self._topics |= {topic: TopicConfig(config.queues, config.queues) for topic in topics}
        self._data_version = DataVersion(_FIRST_VERSION, clock.now_ms())
        self._body: RegistrationBody | None = None  # of the topics and version above
        self._links = [
            NameServerLink(config, identity.broker_name, addr, self._registration, tally, event_level)
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
        """Whether all name servers have its newest registration, over the present connections."""
        return all(link.is_registered for link in self._links)

    async def run(self, first_delay_ms: float, first_interval_ms: float) -> None:
        """Register and send heartbeats until cancelled.

        Args:
            first_delay_ms: Milliseconds before the first registration.
            first_interval_ms: Milliseconds from the first registration to the second; then the configured interval.
        """
        await asyncio.sleep(first_delay_ms / 1000)
        async with asyncio.TaskGroup() as tasks:
            for link in self._links:
                tasks.create_task(link.run())
            tasks.create_task(self._heartbeat(first_interval_ms))

    async def register(self) -> int:
        """Register with all name servers in parallel; wait at most for the configured timeout.

        Returns:
            The number of name servers that accepted the registration.
        """
        pending = [link.request_registration() for link in self._links]
        # The latch of BrokerOuterAPI.registerBrokerAll.
        done, _ = await asyncio.wait(pending, timeout=self._config.register_timeout_ms / 1000)
        return sum(request.result() for request in done)

    async def change(self, add: Iterable[str], remove: Iterable[str], queues: int) -> int:
        """Add and remove topics, and register the new table at once.

        Args:
            add: Topics to add; an existing one gets the new number of queues.
            remove: Topics to remove.
            queues: The number of read queues, and of write queues, of each added topic.

        Returns:
            The number of name servers that accepted the new table.
        """
        for topic in remove:
            self._topics.pop(topic, None)
        self._topics |= {topic: TopicConfig(queues, queues) for topic in add}
        self._data_version = self._data_version.next(self._clock.now_ms())
        self._body = None
        accepted = await self.register()
        logger.log(
            self._event_level,
            "topics changed broker=%s topics=%d data_version=%d name_servers=%d/%d",
            self.identity.broker_name,
            len(self._topics),
            self._data_version.counter,
            accepted,
            len(self._links),
        )
        return accepted

    async def unregister(self) -> int:
        """Unregister at all name servers in parallel; call it when ``run`` has ended.

        Returns:
            The number of name servers that no longer have the broker, as far as is known.
        """
        request = unregister_request(self.identity)
        return sum(await asyncio.gather(*(link.unregister(request) for link in self._links)))

    def abort(self) -> None:
        """Drop all connections."""
        for link in self._links:
            link.abort()

    async def _heartbeat(self, first_interval_ms: float) -> None:
        """Register at every interval; the links wait for the answers, this coroutine does not."""
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

    Call ``start``, then ``stop`` (which unregisters) or ``kill`` (which does not); it cannot be started again.
    """

    def __init__(self, config: AgentConfig, clock: Clock | None = None) -> None:
        """Prepare the brokers; call it on the event loop that they run on.

        Args:
            config: What to simulate.
            clock: Source of time stamps; the machine's by default.

        Raises:
            ConfigError: The ports from ``broker_addr`` on are too few for the brokers, and the host is no IP address.
        """
        self.tally = Tally()
        self._config = config
        level = logging.INFO if config.brokers <= MAX_LOGGED_BROKERS else logging.DEBUG
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
        """Start the brokers, spread over the configured time. Returns at once."""
        loop = asyncio.get_running_loop()
        interval_ms = self._config.heartbeat_interval_ms
        gap_ms = self._config.spread_ms / len(self._brokers)
        for index, (name, broker) in enumerate(self._brokers.items()):
            # Otherwise a fleet that was started together would register in the same few seconds of every interval.
            first_interval_ms = interval_ms if len(self._brokers) == 1 else interval_ms * random.uniform(0.1, 1.0)
            self._tasks.append(loop.create_task(broker.run(index * gap_ms, first_interval_ms), name=name))

    async def change(
        self,
        broker_name: str | None = None,
        *,
        add: Iterable[str] = (),
        remove: Iterable[str] = (),
        queues: int | None = None,
    ) -> int:
        """Add and remove topics of one broker or all; each gets a new DataVersion and registers at once.

        Args:
            broker_name: The broker; None for all of them.
            add: Topics to add, or to give another number of queues.
            remove: Topics to remove. Name servers keep topics that a registration merely omits, unless they are
                configured to delete them.
            queues: Queues of the added topics; those of the configuration if not given.

        Returns:
            The number of accepted registrations.

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
            The number of links, out of ``Tally.links``, whose server acknowledged it, or never had the broker.
        """
        await self._end_tasks()
        gate = asyncio.Semaphore(_UNREGISTER_AT_ONCE)

        async def unregister(broker: SimulatedBroker) -> int:
            async with gate:
                return await broker.unregister()

        return sum(await asyncio.gather(*(unregister(broker) for broker in self._brokers.values())))

    async def kill(self) -> None:
        """Drop all connections without unregistering, as a crash of the process would."""
        for broker in self._brokers.values():
            broker.abort()
        await self._end_tasks()
        for broker in self._brokers.values():
            broker.abort()  # connections opened in between

    def raise_if_broken(self) -> None:
        """Raise the exception that ended a broker, which is always a bug."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()
