"""Which of two connections, addresses and ids of a broker counts, and what is said of the other."""

from namesrv_stream.route.events import Origin
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import Holder, Registration


def later_holder(held: Holder | None, origin: Origin) -> Holder:
    """The connection that holds from now on: that of a server's newest start, for records of earlier ones come late."""
    if held is not None and origin.server_epoch < held.server_epoch:
        return held
    return origin.holder


def superseded(origin: Origin, held: Holder) -> str:
    """Why an event over another connection than the holder's does not count, for people."""
    return (
        f"came over connection {origin.connection_id} of epoch {origin.server_epoch}, but the broker is held over"
        f" {held.connection_id} of epoch {held.server_epoch}"
    )


def displaced(old: BrokerGroup, registration: Registration) -> str | None:
    """What a registration changes of who is who, for people; None where it changes nothing of that."""
    addr, broker_id = registration.broker_addr, registration.broker_id
    before = old.broker_addrs.get(broker_id, addr)
    said = [f"brokerId {broker_id} was {before}"] if before != addr else []
    said += [f"{addr} was brokerId {i}" for i, a in old.broker_addrs.items() if a == addr and i != broker_id]
    return ", ".join(said) or None
