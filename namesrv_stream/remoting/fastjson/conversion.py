"""Converts values as fastjson 1.2.83 does: casts to the type of a property, and references within a document.

If a cast returns None, the property keeps its default, which the caller has to supply.

``{"$ref":"$.path"}`` is fastjson's form of an object that was written before in the same document. A reference is
replaced by the object that it names. A reference is replaced by None if it names a container of itself, or something
that contains a reference: fastjson never writes these, and the result could be cyclic. The total size of the targets is
limited, with texts counted by their length, so that processing the result stays in proportion to the document.

Source: fastjson 1.2.83, TypeUtils for casts, and SerialContext.toString for the paths; its output for keys with special
characters was checked.
"""

import re
from typing import Any, Final

import orjson

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,32}(?:\.0*)?")


def as_integer(value: object, bits: int) -> int | None:
    """Cast to a Java int (32 bits) or long (64). Texts are parsed, fractions are cut off, an empty text is null.

    Source: TypeUtils.castToInt, castToLong.

    Raises:
        ValueError: The value is not a number, or does not fit into ``bits`` bits.
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
    """Cast to a Java String: numbers and booleans become JSON text.

    Source: StringCodec.deserialze.

    Raises:
        ValueError: The value is an array or object. fastjson converts these to JSON, but no peer sends them.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return orjson.dumps(value).decode()
    raise ValueError("is not a string")


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


# The budget is several times the document, because a small document may name the same object often.
_FREE_CHARS: Final = 64 * 1024
_BUDGET_PER_CHAR: Final = 4
_COST_OF_A_VALUE: Final = 16  # in characters, because every value takes time

# `.name`, in which a backslash makes any character part of the name, or `[index]`, also written for integer keys.
_STEP: Final = re.compile(r"\.((?:[^.\[\]\\]|\\.)++)|\[([0-9]{1,10})\]", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def resolve_references(document: Any, size: int, max_depth: int) -> Any:
    """Return the document with its references replaced. It is changed in place.

    Args:
        document: A dict, list, or plain value.
        size: Length of the document's text.
        max_depth: Maximum number of levels of nesting.

    Raises:
        ValueError: The targets are many times larger than the text, or the document is nested too deeply.
    """
    if _path_of(document) is not None:
        return None
    references = _References(_FREE_CHARS + _BUDGET_PER_CHAR * size, max_depth)
    if isinstance(document, dict | list):
        references.collect(document)
        references.resolve(document)
    return document


class _References:
    """The references of one document."""

    def __init__(self, budget: int, max_depth: int) -> None:
        """Accept references whose targets cost at most ``budget`` characters in total."""
        self._budget = budget
        self._max_depth = max_depth
        self._open: list[Any] = []
        self._found: list[tuple[Any, Any, str]] = []
        self._referring: set[int] = set()  # ids of containers that contain a reference at any level

    def collect(self, container: Any) -> None:
        """Record the references in ``container``, and replace them by None until they are resolved."""
        if len(self._open) >= self._max_depth:
            raise ValueError(f"nested more than {self._max_depth} levels deep")
        self._open.append(container)
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(value, dict | list):
                path = _path_of(value)
                if path is None:
                    self.collect(value)
                else:
                    container[key] = None
                    self._found.append((container, key, path))
                    self._referring.update(map(id, self._open))
        self._open.pop()

    def resolve(self, document: Any) -> None:
        """Replace the recorded references by their targets."""
        for container, key, path in self._found:
            target = _find(document, path)
            if id(target) not in self._referring:
                self._spend_on(target)
                container[key] = target

    def _spend_on(self, target: Any) -> None:
        unvisited = [target]
        while unvisited:
            value = unvisited.pop()
            self._budget -= _COST_OF_A_VALUE
            if isinstance(value, dict):
                self._budget -= sum(map(len, value))
                unvisited += value.values()
            elif isinstance(value, list):
                unvisited += value
            elif isinstance(value, str):
                self._budget -= len(value)
            if self._budget < 0:
                raise ValueError("references make the document many times larger than its text")


def _path_of(value: Any) -> str | None:
    """Return the path of an object whose only key is ``$ref``; None for all other values."""
    if isinstance(value, dict) and len(value) == 1:
        path = value.get("$ref")
        return path if isinstance(path, str) else None
    return None


def _find(document: Any, path: str) -> Any:
    """Return the value at ``path`` in ``document``; None if there is none."""
    steps = _steps(path)
    if steps is None:
        return None
    value = document
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def _steps(path: str) -> list[str] | None:
    """Return the keys and indexes of ``path``; None if it is invalid or does not begin with ``$``, the document."""
    if not path.startswith("$"):
        return None
    steps: list[str] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return None
        name, index = match.groups()
        steps.append(index if name is None else _ESCAPED.sub(r"\1", name))
        position = match.end()
    return steps
