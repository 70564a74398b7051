"""Converts values in JSON bodies as fastjson does for a Java object's fields; ValueError if fastjson could not."""

from collections.abc import Mapping
from typing import Any

from namesrv_stream.remoting.fastjson import conversion


def as_object(value: Any, where: str) -> Mapping[str, Any]:
    """Return a JSON object; ``where`` names it in the error."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    return value


def as_texts(value: Any, where: str) -> tuple[str, ...]:
    """Return a list of strings without its nulls, which Java would keep and then send in answers."""
    if not isinstance(value, list):
        raise ValueError(f"{where} is not a list")
    try:
        texts = [conversion.as_text(item) for item in value]
    except ValueError as error:
        raise ValueError(f"{where}: an item {error}") from error
    return tuple(text for text in texts if text is not None)


def as_text(value: Any, default: str, where: str) -> str:
    """Return a Java String; null becomes ``default``."""
    try:
        text = conversion.as_text(value)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error
    return default if text is None else text


def as_boolean(value: Any, default: bool, where: str) -> bool:
    """Return a Java boolean; null becomes ``default``."""
    try:
        truth = conversion.as_boolean(value)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error
    return default if truth is None else truth


def as_int(value: Any, default: int | None = None) -> int:
    """Return a Java int, which also fits the tables' columns; null becomes ``default``."""
    if type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF:  # fast path: a registration has some 100,000 of them
        return value
    if value is None and default is not None:
        return default
    return _signed(value, default, 32)


def as_long(value: Any, default: int) -> int:
    """Return a Java long; null becomes ``default``."""
    return _signed(value, default, 64)


def _signed(value: Any, default: int | None, bits: int) -> int:
    try:
        number = conversion.as_integer(value, bits)
    except ValueError as error:
        raise ValueError(
            f"{str(value)[:30]!r} {error}" if isinstance(value, int | float | str) else str(error)
        ) from error
    if number is None:
        number = default
    if number is None:
        raise ValueError("null is not a number")
    return number
