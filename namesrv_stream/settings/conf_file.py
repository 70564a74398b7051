"""The file given by ``--conf``: TOML in our sections, or a Java-style ``.properties`` file with RocketMQ's keys."""

import difflib
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from namesrv_stream.errors import ConfigError
from namesrv_stream.remoting import java_properties
from namesrv_stream.settings.layer import KeyPath, Layer, key_path, scalar
from namesrv_stream.settings.rocketmq_keys import COUNTERPARTS, WITHOUT_MEANING
from namesrv_stream.settings.sections import RENAMED, Settings, is_known
from namesrv_stream.settings.tls_keys import TLS_COUNTERPARTS, TLS_WITHOUT_MEANING, is_agreed

_TOML: Final = (".toml",)
#: RocketMQ's operators call the file namesrv.properties or namesrv.conf.
_PROPERTIES: Final = (".properties", ".conf")
_THEIRS: Final = {**COUNTERPARTS, **TLS_COUNTERPARTS}
_NEITHER: Final = {**WITHOUT_MEANING, **TLS_WITHOUT_MEANING}
#: Some editors of Windows begin a file with it. Java takes it for a part of the first key, which it then does not know.
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def read_conf(path: Path) -> tuple[Layer, list[str]]:
    """The settings in a file, and what its writer should know.

    Raises:
        ConfigError: It cannot be read; names the file, and the key where one is to blame.
    """
    if path.is_dir():
        raise ConfigError(str(path), "--conf", "is a directory, not a file")
    if path.suffix not in _TOML + _PROPERTIES and path.exists():
        known = ", ".join(_TOML + _PROPERTIES)
        raise ConfigError(str(path), "--conf", f"the name of the file must end in one of {known}")
    try:
        if path.suffix in _PROPERTIES:
            return _read_properties(path)
        return _read_toml(path), []
    except OSError as error:
        raise ConfigError(str(path), "--conf", error.strerror or str(error)) from None


def _read_toml(path: Path) -> Layer:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), "TOML", str(error)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "TOML", f"not UTF-8: {error.reason}") from None
    return {key: (value, str(path)) for key, value in _flatten((), tables)}


def _flatten(path: KeyPath, value: object) -> Iterable[tuple[KeyPath, Any]]:
    if not isinstance(value, dict) or (not value and len(path) > 1):
        yield path, value
        return
    for key, inner in value.items():
        # Below an `extra` table the dots belong to the name: `spark.ui.enabled` is one option.
        inner_path = (*path[:2], f"{path[2]}.{key}") if len(path) > 2 else (*path, str(key))
        yield from _flatten(inner_path, inner)


def read_tls_config(name: object, source: str) -> tuple[Layer, list[str]]:
    """What the file of ``tls.config_file`` says under RocketMQ's names, and what its writer should know.

    Args:
        name: The file; relative to the current directory.
        source: Where ``tls.config_file`` was set.

    Raises:
        ConfigError: It cannot be read, or a value in it cannot.
    """
    if not isinstance(name, str):
        raise ConfigError(source, "tls.config_file", f"is no path: {name!r}")
    path = Path(name).expanduser()
    try:
        layer, warnings = _read_properties(path)
    except OSError as error:
        raise ConfigError(source, "tls.config_file", f"{path}: {error.strerror or error}") from None
    foreign = next((key for key in layer if key[0] != "tls"), None)
    if foreign is not None:
        raise ConfigError(str(path), ".".join(foreign), "does not belong into tls.config_file")
    return layer, warnings


def _read_properties(path: Path) -> tuple[Layer, list[str]]:
    try:
        properties = java_properties.loads(path.read_bytes().removeprefix(_BYTE_ORDER_MARK))
    except ValueError as error:
        raise ConfigError(str(path), "properties", str(error)) from None
    layer: Layer = {}
    warnings: list[str] = []
    spelt: dict[KeyPath, str] = {}
    # Ours last: where a file says the same thing twice, the plainer name holds.
    for name in sorted(properties, key=lambda name: name not in _THEIRS):
        text = properties[name].strip()
        if is_agreed(name, text.lower(), properties):
            continue
        if name in _THEIRS:
            found: KeyPath = _THEIRS[name][:2]
            value = _converted(path, name, text)
        elif is_known(key_path(name)) or key_path(name) in RENAMED:
            found = key_path(name)
            value = scalar(found, text)
        else:
            warnings.append(f"{path}: {name}: {_why_ignored(name)}")
            continue
        if found in spelt:
            warnings.append(f"{path}: {spelt[found]}: ignored, since {name} is given too")
        spelt[found] = name
        layer[found] = (value, f"{path} ({name})")
    return layer, warnings


def _converted(path: Path, name: str, text: str) -> object:
    try:
        return _THEIRS[name].value_of(text)
    except ValueError as error:
        raise ConfigError(str(path), name, f"{error}, not {text!r}") from None


def _why_ignored(name: str) -> str:
    if name in _NEITHER:
        return f"has no effect here: {_NEITHER[name]}"
    close = difflib.get_close_matches(name, [*_THEIRS, *_NEITHER, *_our_keys()], n=1)
    return f"unknown key, ignored; did you mean {close[0]}?" if close else "unknown key, ignored"


def _our_keys() -> Iterator[str]:
    for section, field in Settings.model_fields.items():
        yield from (f"{section}.{key}" for key in type(field.default).model_fields)
