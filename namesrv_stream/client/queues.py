"""The writable and readable queues of a topic, computed from its route; free of I/O.

Source: rocketmq 5.3.3, MQClientInstance.topicRouteData2TopicPublishInfo and topicRouteData2TopicSubscribeInfo,
ClientMetadata.topicRouteData2EndpointsForStaticTopic.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from namesrv_stream.client.client_errors import UnexpectedAnswer
from namesrv_stream.client.route import TopicQueueMapping, TopicRouteData
from namesrv_stream.remoting.command import RequestCode

_MOCK_BROKER_PREFIX: Final = "__syslo__"  # MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX
_GLOBAL_SCOPE: Final = "__global__"  # MixAll.METADATA_SCOPE_GLOBAL
# A larger number is a mistake in the configuration, and would need too much memory.
_MAX_QUEUES: Final = 65_536


class MessageQueue(NamedTuple):
    """One queue of a topic.

    Attributes:
        broker_name: For a static topic the name that stands for all its brokers, as in Java: ``__syslo__global__``.
        broker_addr: ``host:port`` of the master; in `readable_queues`, if there is none, of the slave with lowest id.
            None if there is no such broker.
    """

    topic: str
    broker_name: str
    queue_id: int
    broker_addr: str | None


def writable_queues(route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """Return the queues that a producer chooses from.

    The order configuration of an ordered topic has priority over the registered queues, so that a key keeps its queue
    while a broker is down. Queues of a broker without a master then have no address, like the queues of a
    static topic that no broker claims.

    Raises:
        UnexpectedAnswer: The order configuration is not ``broker:count;…``, or there are more than 65,536 queues at one
            broker.
    """
    masters = {broker.broker_name: addr for broker in route.broker_datas if (addr := broker.master_addr) is not None}
    if route.order_topic_conf:
        counts = _order_conf(route.order_topic_conf)
        return tuple(
            MessageQueue(route.topic, name, queue_id, masters.get(name))
            for name, count in counts
            for queue_id in range(count)
        )
    # Java uses the mappings only if there is no configuration at all, not even an empty one.
    if route.order_topic_conf is None and route.queue_mappings:
        return _static_queues(route, route.queue_mappings)
    return tuple(
        MessageQueue(route.topic, queue.broker_name, queue_id, masters[queue.broker_name])
        for queue in route.queue_datas
        if queue.is_writeable and queue.broker_name in masters
        for queue_id in range(_bounded(queue.write_queue_nums))
    )


def readable_queues(route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """Return the queues that consumers may read: those of every broker with read permission, master or not.

    Without a master the address is that of the slave with the lowest id.

    Raises:
        UnexpectedAnswer: There are more than 65,536 queues at one broker.
    """
    if route.queue_mappings:
        return _static_queues(route, route.queue_mappings)
    addrs = {broker.broker_name: next(iter(broker.broker_addrs.values()), None) for broker in route.broker_datas}
    return tuple(
        MessageQueue(route.topic, queue.broker_name, queue_id, addrs.get(queue.broker_name))
        for queue in route.queue_datas
        if queue.is_readable
        for queue_id in range(_bounded(queue.read_queue_nums))
    )


def next_queue(queues: Sequence[MessageQueue], turn: int, exclude: Collection[str]) -> tuple[MessageQueue | None, int]:
    """Return the next queue with an address, if possible of a broker that is not excluded.

    Args:
        queues: The queues to choose from.
        turn: Round-robin counter; the next queue has the index ``turn % len(queues)``.
        exclude: Broker names to avoid.

    Returns:
        The queue, None if none has an address; and the new counter.

    Source: rocketmq 5.3.3, TopicPublishInfo.selectOneMessageQueue.
    """
    fallback: tuple[MessageQueue | None, int] = (None, turn)
    for step in range(len(queues)):
        queue = queues[(turn + step) % len(queues)]
        if queue.broker_addr is None:
            continue
        if queue.broker_name not in exclude:
            return queue, turn + step + 1
        if fallback[0] is None:
            fallback = queue, turn + step + 1
    return fallback


def _static_queues(route: TopicRouteData, mappings: Sequence[TopicQueueMapping]) -> tuple[MessageQueue, ...]:
    masters = {broker.broker_name: broker.master_addr for broker in route.broker_datas}
    queues = []
    for scope in sorted({mapping.scope for mapping in mappings if mapping.scope is not None}):
        holders: dict[int, TopicQueueMapping] = {}
        scoped = [mapping for mapping in mappings if mapping.scope == scope]
        for mapping in sorted(scoped, key=lambda mapping: mapping.epoch):
            holders |= dict.fromkeys(mapping.logical_queue_ids, mapping)
        name = _MOCK_BROKER_PREFIX + (scope.removeprefix("__") if scope == _GLOBAL_SCOPE else scope)
        for queue_id in range(_bounded(max(mapping.total_queues for mapping in scoped))):
            holder = holders.get(queue_id)
            addr = None if holder is None else masters.get(holder.broker_name)
            queues.append(MessageQueue(route.topic, name, queue_id, addr))
    return tuple(sorted(queues, key=lambda queue: queue.queue_id))


def _order_conf(conf: str) -> list[tuple[str, int]]:
    counts = []
    for part in filter(None, conf.split(";")):
        name, _, count = part.partition(":")
        if not name or not count.strip().isdecimal():
            raise _unexpected(f"orderTopicConf {conf!r}: expected broker:count, several separated by ;")
        counts.append((name, _bounded(int(count))))
    return counts


def _bounded(count: int) -> int:
    if count > _MAX_QUEUES:
        raise _unexpected(f"{count} queues at one broker, more than {_MAX_QUEUES}")
    return count


def _unexpected(reason: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, reason)
