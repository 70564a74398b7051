"""One layer of the settings: values by key, as a file, the environment or flags spell them."""

import tomllib
from typing import Any

# (section, key), or (section, table, name) for the tables whose names are not ours.
KeyPath = tuple[str, ...]
# The value as its layer spells it, and the layer's name for error messages.
Layer = dict[KeyPath, tuple[Any, str]]


def key_path(dotted: str) -> KeyPath:
    """``section.key``, or ``section.table.name``, whose name may hold dots."""
    return tuple(dotted.split(".", 2))


def scalar(path: KeyPath, text: str) -> Any:
    """``text`` as it is where its type is known; for options passed through as TOML would read it (true, 5, 1.5)."""
    if len(path) < 3 or path[:2] == ("admin", "accounts"):
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str) else text
