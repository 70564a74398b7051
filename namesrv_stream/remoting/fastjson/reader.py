"""Reads JSON in the dialect of fastjson 1.2.83.

There are three readers, tried in order of cost. (1) orjson reads standard JSON. (2) orjson reads the text after bare
integer keys were quoted; fastjson itself writes no other deviation. (3) The reader in this module covers the rest of
the dialect: bare keys, single quotes, trailing commas, comments, a byte order mark, raw control characters in strings,
Java's number suffixes. It is a hundred times slower, so it accepts short texts only. All three resolve ``$ref``.
"""

import re
from math import isinf
from typing import Any, Final, NoReturn

import orjson

from namesrv_stream.remoting.fastjson.conversion import resolve_references

# Real bodies have up to 5 levels. The limit bounds the recursion here and in callers; orjson's own limit is 1024.
MAX_DEPTH: Final = 64
#: The reader of this module blocks the caller's event loop for up to 3 microseconds per character.
MAX_LENIENT_BYTES: Final = 512 * 1024
#: Maximum number of values of one document. 115,000 topics, which fill the largest frame, have 1,200,000. A value of
#: two bytes of text can take a hundred times as much memory.
MAX_VALUES: Final = 2_000_000
#: Bytes in which values are counted at a time.
_COUNTED_AT_ONCE: Final = 128 * 1024
_MAX_INTEGER_KEYS: Final = 300_000
_MAX_NUMBER_CHARS: Final = 400  # the largest double has 309 digits; conversion takes quadratic time

_BARE_INTEGER_KEY: Final = re.compile(rb"([{,][ \t\r\n]*+)(-?[0-9]++)(?=[ \t\r\n]*+:)")
_SKIPPED: Final = re.compile(r"(?:[ \t\r\n\f\b]++|/\*.*?\*/|//[^\n]*+)*+", re.DOTALL)
_STRING: Final = {
    '"': re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL),
    "'": re.compile(r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL),
}
_BARE_KEY: Final = re.compile(r"[A-Za-z_$\u0100-\U0010ffff][A-Za-z0-9_$\u0100-\U0010ffff]*+")
_NUMBER: Final = re.compile(r"(-?[0-9]++(\.[0-9]++)?([eE][+-]?[0-9]++)?)[LSBFD]?")
_LITERAL: Final = re.compile(r"[A-Za-z]++")
_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_SIMPLE_ESCAPES: Final = {
    **{char: char for char in "\"'\\/"},
    **{str(digit): chr(digit) for digit in range(8)},
    **{"b": "\b", "f": "\f", "F": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"},
}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class TooLongForLenient(ValueError):
    """A text in the dialect exceeds the limit for the slow reader."""


def loads(data: bytes | str, max_lenient_bytes: int = MAX_LENIENT_BYTES) -> Any:
    """Return the value of ``data``, standard JSON or fastjson's dialect, in linear time.

    Returns:
        dict, list, str, int, float, bool or None. All keys are str, including integer keys. Each ``$ref`` is replaced
        by its target, see ``conversion``.

    Raises:
        TooLongForLenient: The text is not JSON, and longer than ``max_lenient_bytes``.
        ValueError: The text is neither, is not UTF-8, is nested too deeply, or has too many values.
    """
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
    try:
        return loads_written(raw)
    except ValueError as error:
        if len(raw) > max_lenient_bytes:
            text = f"{error} ({len(raw)} bytes exceed the limit for the lenient reader)"
            raise TooLongForLenient(text) from error
    return loads_lenient(raw)


def loads_written(raw: bytes) -> Any:
    """Like ``loads``, for texts that fastjson itself writes: JSON except for bare integer keys.

    Raises:
        ValueError: The text is invalid, is nested too deeply, or has too many values.
    """
    require_few_values(raw)
    try:
        value = orjson.loads(raw)
    except ValueError:
        quoted = _quote_integer_keys(raw)
        if quoted is None:
            raise
        value = orjson.loads(quoted)
    return resolve_references(value, len(raw), MAX_DEPTH) if b'"$ref"' in raw else value


def require_few_values(raw: bytes) -> None:
    """Check that a text cannot have more than ``MAX_VALUES`` values. Commas and brackets in strings count as well.

    Raises:
        ValueError: The text may have more.
    """
    if has_more_values(raw, MAX_VALUES):
        raise ValueError(f"more than {MAX_VALUES} values")


def has_more_values(raw: bytes, most: int) -> bool:
    """Return whether a text may have more than ``most`` values."""
    # Every value is the first of its container or follows a comma. A long text is not counted to its end.
    count = 0
    for begin in range(0, len(raw), _COUNTED_AT_ONCE):
        count += sum(raw.count(mark, begin, begin + _COUNTED_AT_ONCE) for mark in (b",", b"{", b"["))
        if count > most:
            return True
    return False


def loads_lenient(data: bytes | str, *, numbers_as_text: bool = False) -> Any:
    """Like ``loads``, but always with the slow reader of this module.

    Args:
        data: The text, UTF-8 if bytes.
        numbers_as_text: Whether numbers are returned as str, as written.

    Raises:
        ValueError: The text is malformed, is not UTF-8, or is nested more than ``MAX_DEPTH`` levels deep.
    """
    text = data if isinstance(data, str) else data.decode("utf-8")
    value = _Reader(text.removeprefix("\ufeff"), numbers_as_text).document()
    return resolve_references(value, len(text), MAX_DEPTH) if "$ref" in text else value


def _quote_integer_keys(raw: bytes) -> bytes | None:
    """Return ``raw`` with quotes around its bare integer keys; None if it has none, or too many.

    The number of unescaped quotes before a key distinguishes it from text in a string. Single-quoted strings and
    comments may falsify that number, but orjson rejects a text with any of these.
    """
    unescaped = raw.replace(b"\\\\", b"  ").replace(b'\\"', b"  ") if b"\\" in raw else raw
    parts: list[bytes] = []
    position = 0
    inside_string = False
    for match in _BARE_INTEGER_KEY.finditer(raw):
        key_at, key_end = match.span(2)
        inside_string ^= unescaped.count(b'"', position, key_at) % 2 == 1
        parts.append(raw[position:key_at])
        parts.append(match[2] if inside_string else b'"' + match[2] + b'"')
        position = key_end
        if len(parts) > 2 * _MAX_INTEGER_KEYS:
            return None
    if not parts:
        return None
    parts.append(raw[position:])
    return b"".join(parts)


class _Reader:
    """A recursive-descent parser for one text; an instance is used once."""

    def __init__(self, text: str, numbers_as_text: bool) -> None:
        self._text = text
        self._numbers_as_text = numbers_as_text
        self._position = 0

    def document(self) -> Any:
        value = self._value(0)
        if self._next_char():
            self._fail("text after the value")
        return value

    def _next_char(self) -> str:
        """Return the next significant character without consuming it; an empty text at the end."""
        match = _SKIPPED.match(self._text, self._position)
        if match is not None:
            self._position = match.end()
        return self._text[self._position : self._position + 1]

    def _value(self, depth: int) -> Any:
        char = self._next_char()
        if char in _STRING:
            return self._string(char)
        if char == "{":
            return self._object(depth + 1)
        if char == "[":
            return self._array(depth + 1)
        if char == "-" or char.isdecimal():
            return self._number()
        return self._literal()

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._enter(depth)
        while self._next_char() != "}":
            key = self._key()
            if self._next_char() != ":":
                self._fail("expected a colon")
            self._position += 1
            members[key] = self._value(depth)
            self._end_of_item("}")
        self._position += 1
        return members

    def _array(self, depth: int) -> list[Any]:
        items: list[Any] = []
        self._enter(depth)
        while self._next_char() != "]":
            items.append(self._value(depth))
            self._end_of_item("]")
        self._position += 1
        return items

    def _enter(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._fail(f"nested more than {MAX_DEPTH} levels deep")
        self._position += 1

    def _end_of_item(self, closing: str) -> None:
        """Consume a comma, which may also precede ``closing``."""
        char = self._next_char()
        if char == ",":
            self._position += 1
        elif char != closing:
            self._fail(f"expected a comma or {closing}")

    def _key(self) -> str:
        char = self._next_char()
        if char in _STRING:
            return self._string(char)
        match = _BARE_KEY.match(self._text, self._position) or _NUMBER.match(self._text, self._position)
        if match is None:
            self._fail("expected a key")
        self._position = match.end()
        return match.group()

    def _string(self, quote: str) -> str:
        match = _STRING[quote].match(self._text, self._position)
        if match is None:
            self._fail("string without an end")
        self._position = match.end()
        text = match[1]
        return self._unescaped(text) if "\\" in text else text

    def _unescaped(self, text: str) -> str:
        unescaped = _ESCAPE.sub(self._escaped_char, text)
        if _SURROGATE.search(unescaped) is None:
            return unescaped
        # Two surrogates of a pair become one character. Java keeps a lone one, which UTF-8 cannot encode: replace it.
        return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _escaped_char(self, match: re.Match[str]) -> str:
        code = match[1] or match[2]
        if code:
            return chr(int(code, 16))
        char = _SIMPLE_ESCAPES.get(match[3])
        if char is None:
            self._fail("unknown escape in a string")
        return char

    def _number(self) -> int | float | str:
        match = _NUMBER.match(self._text, self._position)
        if match is None:
            self._fail("malformed number")
        self._position = match.end()
        text = match[1]
        if self._numbers_as_text:
            return text
        if len(text) > _MAX_NUMBER_CHARS:
            self._fail("number out of range")
        if match[2] is None and match[3] is None:
            return int(text)
        number = float(text)
        if isinf(number):
            self._fail("number out of range")
        return number

    def _literal(self) -> bool | None:
        match = _LITERAL.match(self._text, self._position)
        literal = match.group() if match is not None else ""
        if literal not in _LITERALS:
            self._fail("expected a value")
        self._position += len(literal)
        return _LITERALS[literal]

    def _fail(self, reason: str) -> NoReturn:
        raise ValueError(f"{reason} at character {self._position}")
