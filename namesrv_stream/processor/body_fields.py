"""Converts values in JSON bodies as fastjson does for a Java object's fields, and limits the length of names.

A value that fastjson could not convert raises ValueError.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from namesrv_stream.errors import RequestRefused
from namesrv_stream.remoting.fastjson import conversion

T = TypeVar("T")

#: Brokers accept topic names of 127 characters, and put a prefix before group names of at most 255. Source: rocketmq
#: 5.3.3, TopicValidator.TOPIC_MAX_LENGTH, Validators.CHARACTER_MAX_LENGTH, MixAll.getRetryTopic.
_MAX_NAME_CHARS: Final = 1_024


def is_too_long(*names: str) -> bool:
    return any(len(name) > _MAX_NAME_CHARS for name in names)


def require_short(what: str, name: str) -> None:
    """Raise RequestRefused if a name is longer than any of RocketMQ's; its hash and its copies in the log cost time."""
    if is_too_long(name):
        raise RequestRefused(f"{what} of {len(name)} characters exceeds {_MAX_NAME_CHARS}")


def as_object(value: Any, where: str) -> Mapping[str, Any]:
    """Return ``value`` if it is a JSON object; ``where`` names it in the error."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object")
    return value


def as_texts(value: Any, where: str) -> tuple[str, ...]:
    """Return a list of strings without its nulls, which Java would keep and then send in answers."""
    if not isinstance(value, list):
        raise ValueError(f"{where} is not a list")
    texts = [_cast(conversion.as_text, item, f"{where}: an item") for item in value]
    return tuple(text for text in texts if text is not None)


def as_text(value: Any, default: str, where: str) -> str:
    """Return a Java String; null becomes ``default``."""
    text = _cast(conversion.as_text, value, where)
    return default if text is None else text


def as_boolean(value: Any, default: bool, where: str) -> bool:
    """Return a Java boolean; null becomes ``default``."""
    truth = _cast(conversion.as_boolean, value, where)
    return default if truth is None else truth


def _cast(cast: Callable[[Any], T | None], value: Any, where: str) -> T | None:
    try:
        return cast(value)
    except ValueError as error:
        raise ValueError(f"{where} {error}") from error


def as_int(value: Any, default: int | None = None) -> int:
    """Return a Java int, which also fits the tables' columns; null becomes ``default``, or raises if that is None."""
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
        shown = f"{str(value)[:30]!r} " if isinstance(value, int | float | str) else ""
        raise ValueError(f"{shown}{error}") from error
    number = default if number is None else number
    if number is None:
        raise ValueError("null is not a number")
    return number
