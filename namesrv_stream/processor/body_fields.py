"""Values inside bodies as fastjson would put them into a Java object's fields; ValueError where it could not."""

from collections.abc import Mapping
from typing import Any

from namesrv_stream.remoting.fastjson import casts


def as_object(value: Any, where: str) -> Mapping[str, Any]:
    """A JSON object; ``where`` names it in the error."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    return value


def as_texts(value: Any, where: str) -> tuple[str, ...]:
    """A list of strings; nulls are left out, which Java would keep and then answer with."""
    if not isinstance(value, list):
        raise ValueError(f"{where} is not a list")
    try:
        texts = [casts.as_text(item) for item in value]
    except ValueError as error:
        raise ValueError(f"{where}: an item {error}") from error
    return tuple(text for text in texts if text is not None)


def as_text(value: Any, default: str, where: str) -> str:
    """A Java String; null leaves it at its default."""
    try:
        text = casts.as_text(value)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error
    return default if text is None else text


def as_boolean(value: Any, default: bool, where: str) -> bool:
    """A Java boolean; null leaves it at its default."""
    try:
        truth = casts.as_boolean(value)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error
    return default if truth is None else truth


def as_int(value: Any, default: int | None = None) -> int:
    """A Java int, which the tables' columns hold too; null leaves a Java field at its default."""
    if type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF:  # a registration has some hundred thousand of them
        return value
    if value is None and default is not None:
        return default
    return _signed(value, default, 32)


def as_long(value: Any, default: int) -> int:
    """A Java long; null as with ``as_int``."""
    return _signed(value, default, 64)


def _signed(value: Any, default: int | None, bits: int) -> int:
    try:
        number = casts.as_integer(value, bits)
    except ValueError as error:
        raise ValueError(
            f"{str(value)[:30]!r} {error}" if isinstance(value, int | float | str) else str(error)
        ) from error
    if number is None:
        number = default
    if number is None:
        raise ValueError("null is not a number")
    return number
