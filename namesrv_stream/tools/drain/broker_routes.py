"""A broker's permissions at every name server, its message counter, and the record of a drain."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from namesrv_stream.client import admin, queries
from namesrv_stream.client.client_errors import NameServersUnreachable, UnexpectedAnswer
from namesrv_stream.client.commands.query_options import TIMEOUT_MS
from namesrv_stream.client.name_servers import NameServers
from namesrv_stream.client.route import BrokerData, ClusterInfo, QueueData, TopicRouteData, decode_kv_entries
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import NamesrvStreamError, QueryNotFound, TopicNotExist
from namesrv_stream.remoting.command import RequestCode
from namesrv_stream.route.model import DRAINED_BROKERS, DrainRecord, decode_drain
from namesrv_stream.route.topic_route import is_system_topic
from namesrv_stream.tools.drain.drain_state import Observation, PutCounter

#: RocketMQ's RequestCode.GET_BROKER_RUNTIME_INFO, which only brokers answer. Source: rocketmq 5.3.3,
#: AdminBrokerProcessor.prepareRuntimeInfo and StoreStatsService.getRuntimeInfo, whose count includes system topics.
_GET_BROKER_RUNTIME_INFO: Final = 28
_PUTS, _STARTED = "putMessageTimesTotal", "bootTimestamp"
_MOST_REQUESTS: Final = 64  # under way at one name server


@dataclass(frozen=True, slots=True)
class BrokerView:
    """What one name server answers about a broker name.

    Attributes:
        info: All brokers that the name server knows.
        routes: Topic → its route, for the topics that the broker offers.
    """

    broker_name: str
    info: ClusterInfo
    routes: Mapping[str, TopicRouteData]

    @property
    def broker(self) -> BrokerData | None:
        """The processes of the broker name; None if it is not registered."""
        return self.info.brokers.get(self.broker_name)

    @property
    def queues(self) -> dict[str, QueueData]:
        """Topic → the queues that the broker offers for it."""
        name, routes = self.broker_name, self.routes.items()
        return {topic: queues for topic, route in routes for queues in route.queue_datas if queues.broker_name == name}

    @property
    def writable(self) -> dict[str, int]:
        """Topic → permission, for the topics with the write permission."""
        return {topic: queues.perm for topic, queues in self.queues.items() if queues.is_writeable}

    @property
    def only_here(self) -> list[str]:
        """Users' topics whose messages no other broker with a master accepts, sorted."""
        return sorted(
            topic
            for topic in self.writable
            if not is_system_topic(topic, self.info.clusters, self.info.brokers)
            and not any(self._is_substitute(queues) for queues in self.routes[topic].queue_datas)
        )

    def _is_substitute(self, queues: QueueData) -> bool:
        other = self.info.brokers.get(queues.broker_name)
        is_other = other is not None and other.master_addr is not None and queues.broker_name != self.broker_name
        return is_other and queues.is_writeable

    def lacking(self, perms: Mapping[str, int]) -> dict[str, int]:
        """Return those of ``perms`` (topic → permission) whose topic the broker offers without the write permission."""
        queues = self.queues.items()
        return {topic: perms[topic] for topic, q in queues if topic in perms and not q.is_writeable}


class BrokerRoutes:
    """Reads and changes one broker's permissions at every name server; ``close`` closes its connections."""

    def __init__(self, servers: NameServers, broker_name: str) -> None:
        self.broker_name = broker_name
        self._servers = servers
        self._each = {addr: servers.only(addr) for addr in servers.addrs}
        self._brokers: dict[str, NameServers] = {}

    @property
    def addrs(self) -> list[str]:
        """The addresses of the name servers."""
        return list(self._each)

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(peer.close() for peer in (*self._each.values(), *self._brokers.values())))

    async def views(self) -> tuple[dict[str, BrokerView], dict[str, str]]:
        """Return the view of every name server that answers, and why the others do not, both by address."""
        views: dict[str, BrokerView] = {}
        failures: dict[str, str] = {}

        async def read(addr: str, server: NameServers) -> None:
            try:
                views[addr] = await self._view(server)
            except NamesrvStreamError as error:
                failures[addr] = _reason(error)

        await asyncio.gather(*(read(addr, server) for addr, server in self._each.items()))
        return {addr: views[addr] for addr in self._each if addr in views}, failures

    async def _view(self, server: NameServers) -> BrokerView:
        info = await queries.cluster_info(server, TIMEOUT_MS)
        topics: set[str] = set()
        for cluster, names in info.clusters.items():
            if self.broker_name in names:
                topics.update(await queries.topics_of_cluster(server, cluster, TIMEOUT_MS))
        gate = asyncio.Semaphore(_MOST_REQUESTS)

        async def read(topic: str) -> TopicRouteData | None:
            async with gate:
                try:
                    return await queries.topic_route(server, topic, TIMEOUT_MS)
                except TopicNotExist:  # deleted meanwhile
                    return None

        routes = [route for route in await asyncio.gather(*map(read, sorted(topics))) if route is not None]
        offered = {r.topic: r for r in routes if any(q.broker_name == self.broker_name for q in r.queue_datas)}
        return BrokerView(self.broker_name, info, offered)

    async def observe(self, broker_addr: str) -> tuple[Observation, dict[str, BrokerView]]:
        """Query all name servers and the broker; return the observation, and every name server's view."""
        began_ms = SystemClock().monotonic_ms()
        (views, failures), (counter, failure) = await asyncio.gather(self.views(), self.counter(broker_addr))
        writable = {addr: len(view.writable) for addr, view in views.items()}
        return Observation(began_ms, SystemClock().monotonic_ms(), writable, failures, counter, failure), views

    async def counter(self, broker_addr: str) -> tuple[PutCounter | None, str]:
        """Return the message counter of the broker, or None and why it does not answer."""
        if broker_addr not in self._brokers:
            self._brokers[broker_addr] = self._servers.only(broker_addr)
        code = _GET_BROKER_RUNTIME_INFO
        try:
            response = await self._brokers[broker_addr].invoke(queries.request(code), TIMEOUT_MS)
            queries.expect_success(code, response)
            table = decode_kv_entries(code, response.body)
            return PutCounter(table[_STARTED], int(table[_PUTS])), ""
        except NamesrvStreamError as error:
            return None, _reason(error)
        except (KeyError, ValueError):
            return None, f"its runtime statistics have no {_PUTS} and {_STARTED}"

    async def record(self) -> DrainRecord | None:
        """Return the record of the broker's drain, if there is one.

        Raises:
            UnexpectedAnswer: The KV entry of the broker is not a record of a drain.
        """
        try:
            value = await queries.kv_value(self._servers, DRAINED_BROKERS, self.broker_name, TIMEOUT_MS)
        except QueryNotFound:
            return None
        if (record := decode_drain(value)) is None:
            reason = f"an entry of {DRAINED_BROKERS} is not a record of a drain"
            raise UnexpectedAnswer(RequestCode.GET_KV_CONFIG, 0, reason)
        return record

    async def wipe(self, record: DrainRecord) -> None:
        """Write the record of the drain, and then wipe the write permission, at all name servers.

        Raises:
            NamesrvStreamError: A name server refused or did not answer.
        """
        await admin.put_kv(self._servers, DRAINED_BROKERS, self.broker_name, record.encode(), TIMEOUT_MS)
        admin.check(await admin.wipe_write_perm(self._servers, self.broker_name, TIMEOUT_MS))

    async def restore_at(self, addr: str, queues: Mapping[str, QueueData], perms: Mapping[str, int]) -> None:
        """Set the permissions of some topics at one name server, and keep their queues.

        Args:
            addr: The name server, one of ``addrs``.
            queues: Topic → the broker's present queues there.
            perms: Topic → the permission to set.

        Raises:
            NamesrvStreamError: The name server refused or did not answer.
        """
        gate = asyncio.Semaphore(_MOST_REQUESTS)

        async def restore(topic: str, perm: int) -> None:
            async with gate:
                await admin.set_queues(self._each[addr], topic, replace(queues[topic], perm=perm), TIMEOUT_MS)

        await asyncio.gather(*(restore(topic, perm) for topic, perm in perms.items()))

    async def forget(self) -> None:
        """Delete the record of the drain at all name servers.

        Raises:
            NamesrvStreamError: A name server refused or did not answer.
        """
        await admin.delete_kv(self._servers, DRAINED_BROKERS, self.broker_name, TIMEOUT_MS)


def _reason(error: NamesrvStreamError) -> str:
    if isinstance(error, NameServersUnreachable):  # of a single peer
        return next(iter(error.reasons.values()), str(error))
    return str(error)
