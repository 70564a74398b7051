"""Declares custom headers, and converts them to and from ``extFields``.

A header is a frozen dataclass. Its fields are declared by ``text``, ``integer``, ``long`` and ``boolean`` with their
name on the wire. As in Java, reading never fails: RemotingCommand.decodeCommandCustomHeader ignores every error of a
field and leaves the field at its default, even if it is annotated as not null.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

_JAVA_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,32}")
_METADATA_KEY: Final = "namesrv_stream.wire_field"
_WIRE_FIELDS: "dict[type[Any], tuple[tuple[str, WireField], ...]]" = {}  # filled at first use, by class


@dataclass(frozen=True, slots=True)
class WireField:
    """One field of a custom header.

    Attributes:
        wire_name: The key in ``extFields``.
        parse: Returns the value of a text; None if the text is not valid for the type.
        default: The value if the field is absent or cannot be parsed.
        always_written: Whether a field that has its default is written, as Java does for fields of primitive type.
    """

    wire_name: str
    parse: Callable[[str], Any]
    default: Any
    always_written: bool


class CommandCustomHeader:
    """Base class of all custom headers. Source: rocketmq 5.3.3, CommandCustomHeader."""

    __slots__ = ()

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str] | None) -> Self:
        """Return the header of these ext fields. Fields that are absent or cannot be parsed have their defaults."""
        if not ext_fields:
            return cls()
        values: list[Any] = []
        for _, wire_field in wire_fields(cls):
            written = ext_fields.get(wire_field.wire_name)
            value = None if written is None else wire_field.parse(written)
            values.append(wire_field.default if value is None else value)
        return cls(*values)

    def to_ext_fields(self) -> dict[str, str]:
        """Return the ext fields of this header, without those that are null in Java."""
        ext_fields: dict[str, str] = {}
        for name, wire_field in wire_fields(type(self)):
            value = getattr(self, name)
            if value is None or (value == wire_field.default and not wire_field.always_written):
                continue
            ext_fields[wire_field.wire_name] = ("true" if value else "false") if isinstance(value, bool) else str(value)
        return ext_fields


def text(wire_name: str) -> Any:
    """Declare a field of Java's type ``String``: str | None."""
    return _declare(WireField(wire_name, str, None, always_written=False))


def integer(wire_name: str, default: int | None = None, *, primitive: bool = False) -> Any:
    """Declare a field of Java's type ``int`` if primitive, otherwise ``Integer``: int | None, 32 bits signed."""
    return _declare(WireField(wire_name, _parse_int, default, primitive))


def long(wire_name: str, default: int | None = None, *, primitive: bool = False) -> Any:
    """Declare a field of Java's type ``long`` if primitive, otherwise ``Long``: int | None, 64 bits signed."""
    return _declare(WireField(wire_name, _parse_long, default, primitive))


def boolean(wire_name: str, default: bool | None = None, *, primitive: bool = False) -> Any:
    """Declare a field of Java's type ``boolean`` if primitive, otherwise ``Boolean``: bool | None.

    Every text except "true" is false.
    """
    return _declare(WireField(wire_name, _parse_boolean, default, primitive))


def wire_fields(header_class: type[Any]) -> tuple[tuple[str, WireField], ...]:
    """Return the declared fields of a header class with their Python names, in order."""
    known = _WIRE_FIELDS.get(header_class)
    if known is None:
        known = tuple((declared.name, declared.metadata[_METADATA_KEY]) for declared in fields(header_class))
        _WIRE_FIELDS[header_class] = known
    return known


def _declare(wire_field: WireField) -> Any:
    return field(default=wire_field.default, metadata={_METADATA_KEY: wire_field})


def _parse_int(written: str) -> int | None:
    return _parse_signed(written, 31)


def _parse_long(written: str) -> int | None:
    return _parse_signed(written, 63)


def _parse_signed(written: str, bits: int) -> int | None:
    """Parse like Java's parseInt and parseLong: an optional sign and digits, within the range."""
    if _JAVA_INTEGER.fullmatch(written) is None:
        return None
    number = int(written)
    return number if -(1 << bits) <= number < 1 << bits else None


def _parse_boolean(written: str) -> bool:
    return written.lower() == "true"
