"""When the smallest brokerId of a group changes, and whom a name server tells (NOTIFY_MIN_BROKER_ID_CHANGE).

With acting master the member of the smallest id does the master's background work. Members poll their group each
second; a notification spares them the wait, and tells a slave where the returned master replicates from.

Java decides while it handles one request; here the rule reads the difference of a group before and after, so that it
holds for what this server accepted and for rows that say what other servers heard or the fold decided.

Source: rocketmq 5.3.3, RouteInfoManager.registerBroker, unRegisterBroker, notifyMinBrokerIdChanged and
chooseBrokerAddrsToNotify; nameserver.md §7.8.
"""

from dataclasses import dataclass
from typing import Final

from namesrv_stream.route.group import BrokerGroup

#: The smallest id that Java takes an empty group to have: only a negative one (DLedger before its election) beats it.
_MIN_ID_OF_NOBODY: Final = 0


@dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """What the members of a group are told.

    Attributes:
        broker_name: Of the group; for logs, Java does not send it.
        min_broker_id: The smallest id from now on.
        min_broker_addr: Address of the broker that has it.
        offline_broker_addr: Address of the broker that had the smallest id and left; None where one of a smaller
            id arrived.
        ha_broker_addr: Where the arrived broker replicates from; None where one left, or where it told none.
        recipients: Advertised addresses of those to tell, by ascending id.
    """

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None
    recipients: tuple[str, ...]


def min_broker_id_change(before: BrokerGroup, after: BrokerGroup) -> MinBrokerIdChange | None:
    """What to tell of the step from ``before`` to ``after``; None where nobody is told.

    An arrival is told to the others, and to the arrived one where it is alone. A departure is told to all who are
    left, and only in a group with acting master. As in Java nobody is told of an address replaced under the same id,
    of a broker that takes a greater id, or of a new group.

    Differs from RocketMQ: where several leave in one step, ``offline_broker_addr`` is that of the smallest id before
    it, the one that slaves follow; Java's depends on the order of a hash set.
    """
    addrs = after.broker_addrs
    if not addrs:
        return None
    min_id = min(addrs)
    old_min_id = min(before.broker_addrs, default=_MIN_ID_OF_NOBODY)
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
    """Whether the member is in no place of the group any more, neither its id nor its address."""
    addr = before.broker_addrs.get(broker_id)
    return addr is not None and broker_id not in after.broker_addrs and addr not in after.broker_addrs.values()


def _ha_server_addr(group: BrokerGroup, broker_addr: str) -> str | None:
    addrs = (live.ha_server_addr for key, live in group.lives.items() if key.broker_addr == broker_addr)
    return next(addrs, None) or None
