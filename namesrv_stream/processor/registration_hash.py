"""The hash that identifies an unchanged registration, so that the server need not decode it."""

import re
from typing import Final

from xxhash import xxh3_128

from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader

#: 5.x brokers change this stamp whenever they send, so bodies with the same content differ only in it. The pattern is
#: exactly what fastjson writes. A topic with this name has other properties, so it does not match.
_STAMP: Final = re.compile(rb'"mappingDataVersion":\{("counter":[0-9]++,"stateVersion":[0-9]++,"timestamp":[0-9]++)\}')
#: The part of a body that is searched: brokers write the stamp before the topics. A stamp outside it is hashed like the
#: rest, and then no registration of that broker counts as unchanged.
_HEAD_BYTES: Final = 4 * 1024


def registration_hash(header: RegisterBrokerRequestHeader, body: bytes) -> str:
    """Return the same hash for registrations with the same content; checksum, connection and time do not count.

    The hash is not cryptographic, which would take a third of the time of an unchanged registration. A registration
    is compared only with the previous one of the same broker, and a peer that can forge one can also send the other.

    Returns:
        128 bits, as 32 hexadecimal digits.
    """
    said = (
        header.broker_name,
        header.broker_addr,
        header.cluster_name,
        header.ha_server_addr,
        header.broker_id,
        header.heartbeat_timeout_millis,
        header.enable_acting_master,
        header.zone_name,
        header.compressed,
    )
    digest = xxh3_128(repr(said).encode("utf-8", "backslashreplace"))
    head = body[:_HEAD_BYTES]
    begin = 0
    with memoryview(body) as view:
        # After a single quote, which fastjson reads but never writes, a match may be part of a text.
        for stamp in _STAMP.finditer(head) if b"'" not in head else ():
            digest.update(view[begin : stamp.start(1)])
            begin = stamp.end(1)
        digest.update(view[begin:])
    return digest.hexdigest()
