"""All broker processes with what the mass-expiry guard says of them, for people and scripts.

Over remoting, RocketMQ has no word for a broker that is held, and its answers stay as they are. So servers tell it as a
KV namespace that nobody can put anything into; where no broker is held there is no such namespace, as in Java.
"""

from collections.abc import Iterator
from typing import Any

from namesrv_stream.route.hold import encode_hold
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.table import RouteTable

#: KV namespace, as far as questions go.
HELD_NAMESPACE = "namesrv-stream.held-brokers"


def held_key(cluster: str, broker_name: str, broker_addr: str) -> str:
    """The entry of a held broker."""
    return f"{cluster}/{broker_name}/{broker_addr}"


def held_entries(table: RouteTable) -> dict[str, str]:
    """The held brokers as KV entries: ``held_key`` to JSON of the hold."""
    return {
        held_key(key.live_key.cluster, key.broker_name, key.live_key.broker_addr): encode_hold(hold)
        for key, hold in sorted(table.held.items())
    }


def broker_processes(table: RouteTable) -> Iterator[dict[str, Any]]:
    """Each live broker process as JSON's types, by cluster, name and address.

    Yields:
        cluster, broker_name, broker_addr, broker_id (None where another address has taken its place), timeout_ms (None
        for the default), servers that hear it, and held: None, or why it is kept, since and until when (log time,
        epoch milliseconds).
    """
    keys = sorted(LeaseKey(group.broker_name, key) for group in table.groups.values() for key in group.lives)
    for key in sorted(keys, key=lambda key: (key.live_key.cluster, key.broker_name, key.live_key.broker_addr)):
        group = table.group(key.broker_name)
        live, hold = group.lives[key.live_key], table.held.get(key)
        ids = [i for i, addr in sorted(group.broker_addrs.items()) if addr == key.live_key.broker_addr]
        yield {
            "cluster": key.live_key.cluster,
            "broker_name": key.broker_name,
            "broker_id": ids[0] if ids else None,
            "broker_addr": key.live_key.broker_addr,
            "timeout_ms": live.timeout_ms,
            "servers": sorted(live.holders),
            "held": hold._asdict() if hold else None,
        }
