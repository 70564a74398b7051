"""Casts of fastjson 1.2.83: conversion of a value to the type of a property.

The result None means that the property keeps its default, which the caller knows. Source: fastjson 1.2.83, TypeUtils.
"""

import re
from typing import Final

import orjson

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,32}(?:\.0*)?")


def as_integer(value: object, bits: int) -> int | None:
    """Cast to a Java int (32 bits) or long (64). Texts are parsed, fractions are cut off, an empty text is null.

    Source: TypeUtils.castToInt, castToLong.

    Raises:
        ValueError: The value is not a number, or does not fit.
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
    """Cast to a Java String: numbers and booleans become their JSON.

    Source: StringCodec.deserialze.

    Raises:
        ValueError: The value is an array or object. fastjson converts these to JSON, but no peer sends them.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return orjson.dumps(value).decode()
    raise ValueError("is not a text")


def as_boolean(value: object) -> bool | None:
    """Cast to a Java boolean.

    Source: TypeUtils.castToBoolean.

    Raises:
        ValueError: The value is neither true nor false.
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
