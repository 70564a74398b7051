"""From when to when a certificate is valid: the one thing of it that operators forget, and that ``ssl`` does not tell.

Source: RFC 5280 §4.1 (Certificate, Validity), X.690 §8.1 (tags and lengths).
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
#: Elements of a TBSCertificate before its validity: serial number, signature algorithm, issuer; a version may be first.
_BEFORE_VALIDITY: Final = 3
#: A UTCTime's years of two digits are those from 1950 on.
_UTC_TIME_PIVOT: Final = 50


class Validity(NamedTuple):
    """An interval of wall-clock time, both ends included; epoch seconds."""

    not_before_s: int
    not_after_s: int


class _Element(NamedTuple):
    tag: int
    begin: int
    end: int


def validity_of(der: bytes) -> Validity:
    """The validity that a certificate states.

    Args:
        der: One X.509 certificate.

    Raises:
        ValueError: It is none.
    """
    try:
        certificate = _element(der, 0)
        tbs = _element(der, certificate.begin)
        element = _element(der, tbs.begin)
        if element.tag == _VERSION:
            element = _element(der, element.end)
        for _ in range(_BEFORE_VALIDITY):
            element = _element(der, element.end)
        begin = _element(der, element.begin)
        return Validity(_time(der, begin), _time(der, _element(der, begin.end)))
    except IndexError:
        raise ValueError("a certificate that ends before its validity") from None


def _element(der: bytes, at: int) -> _Element:
    tag, length, begin = der[at], der[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        length = int.from_bytes(der[begin : begin + octets], "big")
        begin += octets
    if begin + length > len(der):
        raise IndexError
    return _Element(tag, begin, begin + length)


def _time(der: bytes, element: _Element) -> int:
    text = der[element.begin : element.end].decode("ascii")
    if element.tag == _UTC_TIME:
        text = ("20" if int(text[:2]) < _UTC_TIME_PIVOT else "19") + text
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError(f"a time with the tag {element.tag}")
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())
