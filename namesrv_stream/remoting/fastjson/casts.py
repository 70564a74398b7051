"""How fastjson 1.2.83 takes a value for a property of another type.

null means "leave the property at its default", which is the caller's to know. Source: fastjson 1.2.83, TypeUtils.
"""

import re
from typing import Final

import orjson

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,32}(?:\.0*)?")


def as_integer(value: object, bits: int) -> int | None:
    """A Java int (32 bits) or long (64): texts are parsed, fractions cut off; an empty text is null.

    Source: TypeUtils.castToInt, castToLong.

    Raises:
        ValueError: It is no number, or does not fit.
    """
    if type(value) is not int:
        if value is None or value in ("", "null"):
            return None
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value.partition(".")[0])
        elif isinstance(value, bool | float):
            value = int(value)
        else:
            raise ValueError("is not a number")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"does not fit {bits} bits")
    return value


def as_text(value: object) -> str | None:
    """A Java String: of a plain value what it looks like in JSON.

    Source: StringCodec.deserialze.

    Raises:
        ValueError: It is an array or object, which fastjson would write out; nobody sends that.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return orjson.dumps(value).decode()
    raise ValueError("is not a text")


def as_boolean(value: object) -> bool | None:
    """A Java boolean.

    Source: TypeUtils.castToBoolean.

    Raises:
        ValueError: It is neither.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value == 1
    if isinstance(value, str):
        lowered = value.lower()
        if lowered in ("", "null"):
            return None
        if lowered in ("true", "1", "y", "t"):
            return True
        if lowered in ("false", "0", "f", "n"):
            return False
    raise ValueError("is neither true nor false")
