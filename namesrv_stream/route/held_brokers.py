"""What the mass-expiry guard says of brokers, for people and scripts.

Over remoting, RocketMQ has no word for a broker that is held, and its answers stay as they are. So servers tell it as a
KV namespace that nobody can put anything into; where no broker is held there is no such namespace, as in Java.
"""

from namesrv_stream.route.hold import encode_hold
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
