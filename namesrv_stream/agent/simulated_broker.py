"""One simulated broker: its topic table with a DataVersion, and its ties to all name servers."""

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import Final

from namesrv_stream.agent.config import AgentConfig, BrokerIdentity
from namesrv_stream.agent.name_server_link import NameServerLink
from namesrv_stream.agent.registration import (
    DataVersion,
    RegistrationBody,
    TopicConfig,
    own_topics,
    register_request,
    unregister_request,
)
from namesrv_stream.agent.tally import Tally
from namesrv_stream.clock import Clock
from namesrv_stream.remoting.command import RemotingCommand

logger = logging.getLogger(__name__)

_FIRST_VERSION: Final = 0


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
