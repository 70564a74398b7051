"""The hash by which an unchanged registration is known without being read."""

import re
from typing import Final

from xxhash import xxh3_128

from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader

#: 5.x brokers stamp it anew with each sending, so two bodies that say the same differ in it and nothing else. Exactly
#: as fastjson writes it: a topic of that name has other properties, and so is not taken for it.
_STAMP: Final = re.compile(rb'"mappingDataVersion":\{("counter":[0-9]++,"stateVersion":[0-9]++,"timestamp":[0-9]++)\}')
#: Of a body: brokers write the stamp before the topics. Where it is not in there, it is hashed like all else, and no
#: registration of that broker is ever an unchanged one.
_HEAD_BYTES: Final = 4 * 1024


def registration_hash(header: RegisterBrokerRequestHeader, body: bytes) -> str:
    """Equal for two registrations that say the same, whatever their checksum, connection and time of sending.

    No cryptographic one, which would take a third of an unchanged registration's time: a broker's registration is
    compared with its own last one only, and whoever can send the one can send the other.

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
        # Behind a single quote, which fastjson reads but never writes, what looks like the stamp may be text.
        for stamp in _STAMP.finditer(head) if b"'" not in head else ():
            digest.update(view[begin : stamp.start(1)])
            begin = stamp.end(1)
        digest.update(view[begin:])
    return digest.hexdigest()
