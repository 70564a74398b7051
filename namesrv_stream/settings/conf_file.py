"""Reads the file given by ``--conf``: TOML, or a Java-style ``.properties`` file with RocketMQ's keys."""

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from namesrv_stream.errors import ConfigError
from namesrv_stream.remoting import java_properties
from namesrv_stream.settings.names import (
    Given,
    KeyPath,
    Layer,
    all_keys,
    internal_path,
    is_known,
    key_path,
    public_path,
    scalar,
)
from namesrv_stream.settings.rocketmq_keys import (
    COUNTERPARTS,
    TLS_COUNTERPARTS,
    TLS_WITHOUT_MEANING,
    WITHOUT_MEANING,
    is_agreed,
)

_TOML: Final = (".toml",)
#: RocketMQ's operators call the file namesrv.properties or namesrv.conf.
_PROPERTIES: Final = (".properties", ".conf")
_ROCKETMQ_KEYS: Final = {**COUNTERPARTS, **TLS_COUNTERPARTS}
_WITHOUT_EFFECT: Final = {**WITHOUT_MEANING, **TLS_WITHOUT_MEANING}
#: Some editors on Windows begin a file with it. Java takes it as a part of the first key.
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def read_conf(path: Path) -> tuple[Layer, list[str]]:
    """The settings in a file, and warnings for its writer.

    Raises:
        ConfigError: It cannot be read; names the file, and the key if one is wrong.
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
    return {key: Given(value, str(path)) for key, value in _flatten((), tables)}


def _flatten(path: KeyPath, value: object) -> Iterable[tuple[KeyPath, Any]]:
    if not isinstance(value, dict) or (not value and len(path) > 1):
        yield path, value
        return
    for key, inner in value.items():
        # Below an `extra` table the dots belong to the name: `spark.ui.enabled` is one option.
        inner_path = (*path[:2], f"{path[2]}.{key}") if len(path) > 2 else (*path, str(key))
        yield from _flatten(inner_path, inner)


def read_tls_config(name: object, source: str) -> tuple[Layer, list[str]]:
    """The settings in the file of ``tls.config_file``, under RocketMQ's names, and warnings for its writer.

    Args:
        name: The file; relative to the current directory.
        source: Where ``tls.config_file`` was set.

    Raises:
        ConfigError: It cannot be read, or a value in it is invalid.
    """
    if not isinstance(name, str):
        raise ConfigError(source, "tls.config_file", f"is not a path: {name!r}")
    path = Path(name).expanduser()
    try:
        layer, warnings = _read_properties(path)
    except OSError as error:
        raise ConfigError(source, "tls.config_file", f"{path}: {error.strerror or error}") from None
    foreign = next((key for key in layer if internal_path(key)[0] != "tls"), None)
    if foreign is not None:
        raise ConfigError(str(path), ".".join(foreign), "does not belong in tls.config_file")
    return layer, warnings


def _read_properties(path: Path) -> tuple[Layer, list[str]]:
    try:
        properties = java_properties.loads(path.read_bytes().removeprefix(_BYTE_ORDER_MARK))
    except ValueError as error:
        raise ConfigError(str(path), "properties", str(error)) from None
    layer: Layer = {}
    warnings: list[str] = []
    written: dict[KeyPath, str] = {}  # the name in the file of each setting that it gives
    # RocketMQ's first: if a file gives the same setting twice, the name of this product wins.
    for name in sorted(properties, key=lambda name: name not in _ROCKETMQ_KEYS):
        text = properties[name].strip()
        if is_agreed(name, text.lower(), properties):
            continue
        source = f"{path} ({name})"
        if name in _ROCKETMQ_KEYS:
            key: KeyPath = _ROCKETMQ_KEYS[name][:2]
            given = Given(_converted(path, name, text), source, is_rocketmq_name=True)
        elif is_known(key_path(name)):
            key = key_path(name)
            given = Given(scalar(key, text), source)
        else:
            warnings.append(f"{path}: {name}: {_why_ignored(name)}")
            continue
        found = internal_path(key)
        if found in written:
            warnings.append(f"{path}: {written[found]}: ignored, since {name} is given too")
        written[found] = name
        layer[key] = given
    return layer, warnings


def _converted(path: Path, name: str, text: str) -> object:
    try:
        return _ROCKETMQ_KEYS[name].value_of(text)
    except ValueError as error:
        raise ConfigError(str(path), name, f"{error}, not {text!r}") from None


def _why_ignored(name: str) -> str:
    if name in _WITHOUT_EFFECT:
        return f"has no effect here: {_WITHOUT_EFFECT[name]}"
    own = (".".join(public_path(key)) for key in all_keys())
    close = difflib.get_close_matches(name, [*_ROCKETMQ_KEYS, *_WITHOUT_EFFECT, *own], n=1)
    return f"unknown key, ignored; did you mean {close[0]}?" if close else "unknown key, ignored"
