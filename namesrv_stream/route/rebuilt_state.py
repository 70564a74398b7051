"""The fold's state made from the tables alone, for a partition of which nothing better is left.

The tables say who is live, held by whom and under which settings; they do not say how old each hold is. So every
broker starts again from age zero: one that died meanwhile goes a timeout later, and none goes early. What the guard
held, it holds, from age zero too.
"""

from namesrv_stream.route.fold_state import FoldState, Lease, LeaseHolder, LeaseKey, ServerClock
from namesrv_stream.route.settings import effective_texts
from namesrv_stream.route.table import RouteTable


def rebuilt_state(partition: int, partitions: int, next_offset: int, at_ms: int, table: RouteTable) -> FoldState:
    """The state of a partition, with every broker at age zero.

    Args:
        partition: Kafka partition.
        partitions: Of the topic.
        next_offset: First offset that ``table`` does not cover.
        at_ms: Highest LogAppendTime that the tables have of the partition, epoch milliseconds.
        table: Made of the partition's rows alone.
    """
    state = FoldState(partition, partitions, next_offset, at_ms)
    state.settings = state.settings.with_texts(effective_texts(table.settings))
    for (_, server_id), (epoch, standing) in table.servers.items():
        is_lost = standing == "lost"
        state.servers[server_id] = ServerClock(epoch, 0, 0, 0, silent=is_lost or standing == "silent", lost=is_lost)
    for name, group in table.groups.items():
        for live_key, live in group.lives.items():
            key = LeaseKey(name, live_key)
            lease = Lease(live.timeout_ms, live.registration_hash, hold=table.held.get(key))
            for server_id, holder in live.holders.items():
                state.servers.setdefault(server_id, ServerClock(holder.server_epoch, 0, 0, 0))
                lease.holders[server_id] = LeaseHolder(holder, 0, 0)
            state.add_lease(key, lease)
        for live_key in group.registrations.keys() - group.lives.keys():
            state.gone[LeaseKey(name, live_key)] = at_ms
    state.requeue()
    return state
