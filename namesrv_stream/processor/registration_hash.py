"""The hash by which an unchanged registration is known without being read."""

import hashlib
import re
from collections.abc import Iterator
from typing import Final

from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader

#: 128 bits.
_HASH_DIGITS: Final = 32

#: 5.x brokers stamp it anew with each sending, so two bodies that say the same differ in it and nothing else. Exactly
#: as fastjson writes it: a topic of that name has other properties, and so is not taken for it.
_STAMP_KEY: Final = b'"mappingDataVersion":{'
_STAMP: Final = re.compile(re.escape(_STAMP_KEY) + rb'"counter":[0-9]++,"stateVersion":[0-9]++,"timestamp":[0-9]++\}')


def registration_hash(header: RegisterBrokerRequestHeader, body: bytes) -> str:
    """Equal for two registrations that say the same, whatever their checksum, connection and time of sending."""
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
    digest = hashlib.sha256(repr(said).encode("utf-8", "backslashreplace"))
    with memoryview(body) as view:
        # With single quotes, which fastjson reads but never writes, what looks like the stamp may be text.
        for start, end in [(0, len(body))] if b"'" in body else _between_stamps(body):
            digest.update(view[start:end])
        return digest.hexdigest()[:_HASH_DIGITS]


def _between_stamps(body: bytes) -> Iterator[tuple[int, int]]:
    """Starts and ends of all that is no stamp; its key up to the brace counts as that."""
    start = 0
    at = body.find(_STAMP_KEY)
    while at >= 0:
        match = _STAMP.match(body, at)
        at += len(_STAMP_KEY)
        if match is not None:
            yield start, at
            start = at = match.end() - 1
        at = body.find(_STAMP_KEY, at)
    yield start, len(body)
