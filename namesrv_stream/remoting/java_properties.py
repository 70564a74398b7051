"""Java's properties format, as ``Properties.load(InputStream)`` reads it and ``Properties.store`` writes it.

The text is Latin-1 with ``\\uXXXX`` escapes of UTF-16 units. A line that ends with an odd number of backslashes
continues in the next line. Source: Java SE 17, java.util.Properties.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
#: A key ends at the first unescaped blank, ``=`` or ``:``. Blanks and at most one ``=`` or ``:`` follow.
#: The quantifiers are possessive, because backtracking would take 140 bytes of memory per character of the key.
_KEY_AND_SEPARATOR: Final = re.compile(r"((?:[^\\ \t\f=:]++|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*+", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MEANT: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = {"\\": "\\\\", "=": "\\=", ":": "\\:", "#": "\\#", "!": "\\!"} | {
    char: f"\\{letter}" for letter, char in _MEANT.items()
}


def loads(data: bytes) -> dict[str, str]:
    """Return the keys and values in a properties file. If a key is repeated, its last value counts.

    A surrogate pair written as two escapes becomes one character. A lone surrogate becomes a question mark, as in Java.

    Raises:
        ValueError: A ``\\u`` is not followed by four hexadecimal digits; the message names the line.
    """
    properties = {}
    for number, line in _logical_lines(data.decode("latin-1")):
        found = _KEY_AND_SEPARATOR.match(line)
        end = found.end() if found else 0
        key = found.group(1) if found else ""
        properties[_unescaped(key, number)] = _unescaped(line[end:], number)
    return properties


def dumps(properties: Mapping[str, str]) -> bytes:
    """Return the text that ``loads`` reads, one line per entry, sorted by key."""
    lines = (f"{_escaped(key, is_key=True)}={_escaped(properties[key], is_key=False)}\n" for key in sorted(properties))
    return "".join(lines).encode("ascii")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, line with its continuations); comments and empty lines are skipped."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        part = line[:-1] if is_continued else line
        if part:  # a line of a single backslash does not begin an entry
            parts.append(part)
        if parts and not is_continued:
            yield first, "".join(parts)
            parts = []
    if parts:
        yield first, "".join(parts)


def _unescaped(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def meaning(match: re.Match[str]) -> str:
        written = match.group(1)
        if len(written) == 5:
            return chr(int(written[1:], 16))
        if written == "u":
            raise ValueError(f"line {line}: \\u is not followed by four hexadecimal digits")
        return _MEANT.get(written, written)

    units = _ESCAPE.sub(meaning, text).encode("utf-16-le", "surrogatepass")
    return _LONE_SURROGATE.sub("?", units.decode("utf-16-le", "surrogatepass"))


def _escaped(text: str, *, is_key: bool) -> str:
    written = "".join(_WRITTEN.get(char) or _printable(char) for char in text)
    if is_key:
        return written.replace(" ", "\\ ")
    blanks = len(written) - len(written.lstrip(" "))
    return "\\ " * min(blanks, 1) + written[min(blanks, 1) :]


def _printable(char: str) -> str:
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
