"""How much of a TLS record is here that is not complete: OpenSSL takes half records in, and does not tell of them.

Source: RFC 8446 §5.1 (a record's type, version and length are never encrypted).
"""

from typing import Final

_HEAD_BYTES: Final = 5
_LENGTH_AT: Final = 3


class PartialRecord:
    """Follows the records in a stream of bytes, whatever it is cut into.

    Attributes:
        size: Bytes of the record that is not complete; 0 between two records.
    """

    def __init__(self) -> None:
        self.size = 0
        self._head = b""  # of a record whose length is not here yet
        self._missing = 0  # bytes of a record whose length is known

    def feed(self, data: bytes) -> None:
        """Further bytes of the stream."""
        begin = 0 if self._head else -self.size
        data = self._head + data
        end = self._missing
        while end + _HEAD_BYTES <= len(data):
            length = int.from_bytes(data[end + _LENGTH_AT : end + _HEAD_BYTES], "big")
            begin, end = end, end + _HEAD_BYTES + length
        self._missing = max(end - len(data), 0)
        self._head = b"" if self._missing else data[end:]
        self.size = len(data) - (begin if self._missing else end)
