"""Converts the names of settings between the form that users write and the form that the code uses.

A setting that is marked as :data:`Advanced` is written ``advanced.section.key``, and read as ``settings.section.key``.
A setting that became advanced, and a renamed one, can be written under the old name for one more release.
"""

import difflib
import tomllib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pydantic.fields import FieldInfo

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings.sections import Settings
from namesrv_stream.settings.values import ADVANCED

#: (section, key), or (section, table, name) for the tables with free names. Users may write (advanced, section, key).
KeyPath = tuple[str, ...]

_ADVANCED: Final = "advanced"
#: Keys by their names in the release before this one, which work for one more release.
_RENAMED: Final[dict[KeyPath, KeyPath]] = {
    ("remoting", "express_lane"): ("remoting", "native_lane"),
    ("remoting", "express_answers_bytes"): ("remoting", "native_lane_answers_bytes"),
}


class Given(NamedTuple):
    """A value in one layer.

    Attributes:
        value: The value as the layer contains it.
        source: The layer's name for error messages.
        is_rocketmq_name: Whether the layer uses RocketMQ's own name of the setting, which is always supported.
    """

    value: Any
    source: str
    is_rocketmq_name: bool = False


#: One layer of the settings: a file, the environment, or the flags.
Layer = dict[KeyPath, Given]


def key_path(dotted: str) -> KeyPath:
    """Split ``section.key`` or ``section.table.name`` into a path; the last name may contain dots."""
    return tuple(dotted.split(".", 2))


def scalar(path: KeyPath, text: str) -> Any:
    """Return ``text`` unchanged, or for a passed-through option (``extra``) its TOML value, if any (true, 5, 1.5)."""
    if len(path) < 3 or path[1] != "extra":
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def all_keys() -> Iterator[KeyPath]:
    """Yield (section, key) of every setting, the advanced ones included."""
    for section in Settings.model_fields:
        yield from ((section, key) for key in _fields_of(section))


def is_advanced(path: KeyPath) -> bool:
    """Whether the setting (section, key) is an advanced one."""
    fields = _fields_of(path[0])
    return len(path) == 2 and path[1] in fields and ADVANCED in fields[path[1]].metadata


def is_known(path: KeyPath) -> bool:
    """Whether ``path``, as a user writes it, is a setting, or an option of a table with free names."""
    found = internal_path(path)
    fields = _fields_of(found[0])
    if len(found) < 2 or found[1] not in fields:
        return False
    return len(found) == 2 or isinstance(fields[found[1]].default, dict)


def internal_path(path: KeyPath) -> KeyPath:
    """Return the path that the code uses for the setting that users write as ``path``; ``path`` if there is none."""
    found = path[1:] if path[0] == _ADVANCED else path
    found = _RENAMED.get(found, found)
    return path if path[0] == _ADVANCED and not is_advanced(found) else found


def public_path(path: KeyPath) -> KeyPath:
    """Return the path that users write for the setting that the code names ``path``."""
    return (_ADVANCED, *path) if is_advanced(path) else path


def public_key(dotted: str) -> str:
    """Return ``section.key`` as users write it: ``advanced.remoting.frame_timeout_ms`` or ``kafka.partitions``."""
    return ".".join(public_path(key_path(dotted)))


def with_internal_paths(layer: Layer, warnings: list[str]) -> Layer:
    """Return the layer with the paths that the code uses. If it has a setting twice, the present name takes precedence.

    Args:
        layer: The given settings, under their public paths or those of the previous release.
        warnings: The function appends a line for every name that only the previous release used.

    Raises:
        ConfigError: A key below ``advanced`` is not an advanced setting.
    """
    found: Layer = {}
    for path in sorted(layer, key=lambda path: _precedence(path, layer[path])):
        given, current = layer[path], internal_path(path)
        if current[0] == _ADVANCED:
            raise ConfigError(given.source, ".".join(path), _why_not_advanced(path))
        if path != public_path(current) and not given.is_rocketmq_name:
            new = ".".join(public_path(current))
            warnings.append(f"{given.source}: {'.'.join(path)}: is now {new}; the next release removes the old name")
        found[current] = given
    return found


def _fields_of(section: str) -> dict[str, FieldInfo]:
    """Return the fields of a section by their keys; empty if there is no such section."""
    field = Settings.model_fields.get(section)
    return type(field.default).model_fields if field else {}


def _precedence(path: KeyPath, given: Given) -> int:
    if given.is_rocketmq_name:
        return 0
    return 2 if path == public_path(internal_path(path)) else 1


def _why_not_advanced(path: KeyPath) -> str:
    dotted = ".".join(path[1:])
    if is_known(path[1:]):
        return f"is not an advanced setting: write {dotted}"
    close = difflib.get_close_matches(dotted, [".".join(key) for key in all_keys()], n=1)
    return f"unknown key; did you mean {public_key(close[0])}?" if close else "unknown key"
