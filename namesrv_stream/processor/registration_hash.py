"""The hash by which an unchanged registration is known without being read."""

import re
from collections.abc import Iterator
from typing import Final

from xxhash import xxh3_128

from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader

#: 5.x brokers stamp it anew with each sending, so two bodies that say the same differ in it and nothing else. Exactly
#: as fastjson writes it: a topic of that name has other properties, and so is not taken for it.
_STAMP_KEY: Final = b'"mappingDataVersion":{'
#: Of a body: brokers write the stamp before the topics. Where it is not in there, it is hashed like all else, and no
#: registration of that broker is ever an unchanged one.
_HEAD_BYTES: Final = 4 * 1024
_STAMP: Final = re.compile(re.escape(_STAMP_KEY) + rb'"counter":[0-9]++,"stateVersion":[0-9]++,"timestamp":[0-9]++\}')


def registration_hash(header: RegisterBrokerRequestHeader, body: bytes) -> str:
    """Equal for two registrations that say the same, whatever their checksum, connection and time of sending.

    No cryptographic one, which would take a third of an unchanged registration's time: a broker's registration is
    compared with its own last one only, and whoever can send the one can send the other.

    Returns:
        128 bits, as 32 hexadecimal digits.
    """
    with memoryview(body) as view:
        return body_hash(header_hash(header), view)


def header_hash(header: RegisterBrokerRequestHeader) -> xxh3_128:
    """The hash as far as it is the header's: for ``body_hash``."""
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
    return xxh3_128(repr(said).encode("utf-8", "backslashreplace"))


def body_hash(begun: xxh3_128, body: memoryview) -> str:
    """``registration_hash`` of a header and a body; ``begun``, which stays as it is, is of the header."""
    digest = begun.copy()
    head = bytes(body[:_HEAD_BYTES])
    begin = 0
    # Behind a single quote, which fastjson reads but never writes, what looks like the stamp may be text.
    for start, end in _stamps(head) if b"'" not in head else ():
        digest.update(body[begin:start])
        begin = end
    digest.update(body[begin:])
    return digest.hexdigest()


def _stamps(head: bytes) -> Iterator[tuple[int, int]]:
    """Starts and ends of the stamps, between their braces."""
    at = head.find(_STAMP_KEY)
    while at >= 0:
        match = _STAMP.match(head, at)
        at += len(_STAMP_KEY)
        if match is not None:
            yield at, match.end() - 1
            at = match.end() - 1
        at = head.find(_STAMP_KEY, at)
