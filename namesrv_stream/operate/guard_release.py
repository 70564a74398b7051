"""Lets brokers go that the mass-expiry guard holds: an operator says that they are dead indeed."""

from dataclasses import dataclass

from namesrv_stream.errors import QueryNotFound
from namesrv_stream.operate.broadcast import broadcast
from namesrv_stream.operate.setting_change import check_person
from namesrv_stream.operate.tables_watch import TablesWatch
from namesrv_stream.route.events import DIRECT, GuardReleased, Origin
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class Released:
    """What became of it.

    Attributes:
        brokers: That were held, as far as the tables here tell.
        still_held: Of these: not let go in the tables yet.
        behind: Partitions whose fold has not come to it; None where there are no tables here to see it in.
    """

    brokers: tuple[LeaseKey, ...]
    still_held: tuple[LeaseKey, ...]
    behind: tuple[int, ...] | None


def release(settings: Settings, cluster: str, by: str, timeout_s: float) -> Released:
    """Log the release and wait until the tables have it; blocks.

    Args:
        settings: Where Kafka and the tables are.
        cluster: Whose brokers.
        by: Who lets them go.
        timeout_s: Seconds to wait for the tables.

    Raises:
        QueryNotFound: No broker of the cluster is held.
        KafkaUnreachable: No Kafka.
        PartlyLogged: Only some partitions have it.
    """
    by = check_person(by)
    with TablesWatch(settings) as watch:
        held = _held(watch.table, cluster)
        if watch.exists and not held:
            raise QueryNotFound(f"no broker of cluster {cluster} is held")
        offsets = broadcast(settings, GuardReleased(Origin(DIRECT, 0), cluster, by))
        behind = tuple(watch.wait(offsets, timeout_s)) if watch.exists else None
    after = _held(watch.table, cluster)
    return Released(held, tuple(key for key in held if key in after), behind)


def _held(table: RouteTable, cluster: str) -> tuple[LeaseKey, ...]:
    return tuple(sorted(key for key in table.held if key.live_key.cluster == cluster))
