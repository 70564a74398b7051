"""When so many brokers of a cluster end at once that they are kept, and how those return that went before that showed.

The same for the fold, which decides it, and for a server's view, which must not hide meanwhile what the fold will keep.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from namesrv_stream.route import group as rules
from namesrv_stream.route.events import AcceptedEvent, BrokerDisconnected
from namesrv_stream.route.group import BrokerGroup, Registered
from namesrv_stream.route.model import Holder, LiveKey
from namesrv_stream.route.settings import FoldSettings


class Mass(NamedTuple):
    """So many of a cluster's brokers in one partition seem to end at once."""

    ending: int
    brokers: int


@dataclass(frozen=True, slots=True)
class CloseOfMany:
    """A close that ends nothing in a server's view, for it is one of too many; see ``close_guard``.

    Attributes:
        close: As the server took it in.
        undone: The closes before it that belong to the same mass, in the order in which their brokers return.
    """

    close: BrokerDisconnected
    undone: tuple[BrokerDisconnected, ...] = ()

    @property
    def broker_names(self) -> Iterable[str]:
        """Whose groups it concerns, each once."""
        return dict.fromkeys(close.broker_name for close in (*self.undone, self.close))


#: What can be pending in a view.
PendingEvent = AcceptedEvent | CloseOfMany


def mass_of(settings: FoldSettings, partitions: int, ending: int, brokers: int) -> Mass | None:
    """``ending`` of a cluster's ``brokers`` in one of so many partitions, where that is too many."""
    is_mass = ending >= settings.guard_min_brokers_of(partitions) and (
        ending * 100 > brokers * settings.guard_share_percent
    )
    return Mass(ending, brokers) if is_mass else None


def bring_back(
    group: BrokerGroup,
    key: LiveKey,
    server_id: str,
    holder: Holder,
    *,
    delete_topic_with_broker_registration: bool = False,
) -> Registered:
    """Register a broker that is gone as it was registered last, heard by ``server_id`` over ``holder``."""
    registration = group.registrations.get(key)
    if registration is None:
        return Registered(group, ignored="its registration was not kept")
    for broker_id, addr in group.broker_addrs.items():
        if (broker_id == registration.broker_id) != (addr == key.broker_addr):
            return Registered(group, ignored=f"brokerId {broker_id} is {addr} now")
    outcome = rules.register(
        group,
        registration.read(),
        server_id,
        holder,
        delete_topic_with_broker_registration=delete_topic_with_broker_registration,
    )
    return outcome if outcome.ignored is None else Registered(group, outcome.ignored)
