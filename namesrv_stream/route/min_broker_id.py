"""When the smallest brokerId of a group changes, and whom a name server notifies (NOTIFY_MIN_BROKER_ID_CHANGE).

With acting master, the member with the smallest id does the master's background work. Members poll their group every
second. A notification saves them the wait, and tells a slave where the returned master replicates from.

Java decides while it handles one request. Here the rule compares a group before and after a change, so that it covers
requests to this server as well as committed rows, which come from other servers and the fold.

Source: rocketmq 5.3.3, RouteInfoManager.registerBroker, unRegisterBroker, notifyMinBrokerIdChanged and
chooseBrokerAddrsToNotify; nameserver.md §7.8.
"""

from dataclasses import dataclass
from typing import Final

from namesrv_stream.route.group import BrokerGroup

#: Java's minimum id of an empty group. Only a negative id is smaller (DLedger before its election).
_MIN_ID_OF_EMPTY_GROUP: Final = 0


@dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """A notification of the members of a group.

    Attributes:
        broker_name: Name of the group, for logs; Java does not send it.
        min_broker_id: The smallest id from now on.
        min_broker_addr: Address of the broker with that id.
        offline_broker_addr: Address of the broker that had the smallest id and left; None if a broker with a smaller
            id arrived.
        ha_broker_addr: Where the arrived broker replicates from; None if a broker left, or if it gave no address.
        recipients: Advertised addresses of the brokers to notify, by ascending id.
    """

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None
    recipients: tuple[str, ...]


def min_broker_id_change(before: BrokerGroup, after: BrokerGroup) -> MinBrokerIdChange | None:
    """Return the notification for the step from ``before`` to ``after``; None if there is none.

    An arrival is notified to the other members, and to the arrived broker if it is alone. A departure is notified to
    all remaining members, and only in a group with acting master. As in Java, there is no notification of an address
    replaced under the same id, of a broker that takes a greater id, or of a new group.

    Differs from RocketMQ: if several brokers leave in one step, ``offline_broker_addr`` is the address of the smallest
    id before it, which slaves follow. In Java it depends on the order of a hash set.
    """
    addrs = after.broker_addrs
    if not addrs:
        return None
    min_id = min(addrs)
    old_min_id = min(before.broker_addrs, default=_MIN_ID_OF_EMPTY_GROUP)
    if min_id < old_min_id:
        recipients = [i for i in sorted(addrs) if i != min_id] or [min_id]
        offline_addr, ha_addr = None, _ha_server_addr(after, addrs[min_id])
    elif _is_gone(old_min_id, before, after) and after.enable_acting_master:
        recipients = sorted(addrs)
        offline_addr, ha_addr = before.broker_addrs[old_min_id], None
    else:
        return None
    return MinBrokerIdChange(
        after.broker_name, min_id, addrs[min_id], offline_addr, ha_addr, tuple(addrs[i] for i in recipients)
    )


def _is_gone(broker_id: int, before: BrokerGroup, after: BrokerGroup) -> bool:
    """Whether neither the id nor the address of a former member is in the group any more."""
    addr = before.broker_addrs.get(broker_id)
    return addr is not None and broker_id not in after.broker_addrs and addr not in after.broker_addrs.values()


def _ha_server_addr(group: BrokerGroup, broker_addr: str) -> str | None:
    addrs = (live.ha_server_addr for key, live in group.lives.items() if key.broker_addr == broker_addr)
    return next(addrs, None) or None
