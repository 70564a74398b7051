"""How the settings come together: defaults < ``--conf`` file < environment < flags, each value with where it came from.

A later layer wins key by key. Every key of every layer is checked, so a misspelt one never passes in silence;
that is why the layers are read here and not by pydantic-settings, which skips environment variables it does not know.
"""

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings.checks import check_together
from namesrv_stream.settings.sections import Settings, project_home

ENVIRONMENT_PREFIX: Final = "NAMESRV_STREAM__"
DEFAULT_SOURCE: Final = "default"

# (section, key), or (section, "extra", name) for the tables that are passed through.
_KeyPath = tuple[str, ...]
# The value as its layer spells it, and the layer's name for error messages.
_Layer = dict[_KeyPath, tuple[Any, str]]


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting given on the command line.

    Attributes:
        name: The flag as typed, for messages: ``--listen-port`` or ``--set``.
        key: ``section.key``.
        value: The text given.
    """

    name: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings and where each of them came from.

    Attributes:
        settings: Checked; paths in it are absolute.
        sources: ``section.key`` → a file, an environment variable or a flag; a key at its default is absent.
    """

    settings: Settings
    sources: Mapping[str, str]


def parse_set_flag(text: str) -> Flag:
    """``--set``'s argument ``section.key=value``.

    Raises:
        ConfigError: It has another shape.
    """
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        raise ConfigError("flag --set", text, "expected section.key=value")
    return Flag("--set", key.strip(), value.strip())


def load_settings(
    conf: Path | None = None, environ: Mapping[str, str] | None = None, flags: Iterable[Flag] = ()
) -> LoadedSettings:
    """Read every layer and check the outcome.

    Args:
        conf: The file given by ``--conf``.
        environ: The environment; the process's own if None.
        flags: Command-line settings; the later wins.

    Raises:
        ConfigError: Naming the layer and the key.
    """
    layer: _Layer = {}
    if conf is not None:
        layer |= _read_conf(conf)
    layer |= _read_environment(os.environ if environ is None else environ)
    for flag in flags:
        path = tuple(flag.key.split(".", 2))
        layer[path] = (_scalar(flag.value) if len(path) > 2 else flag.value, f"flag {flag.name}")
    return _resolve(layer)


def _resolve(layer: _Layer) -> LoadedSettings:
    try:
        settings = Settings.model_validate(_nested(layer))
    except ValidationError as error:
        raise _config_error(error.errors()[0], layer) from None
    sources = {".".join(path): source for path, (_, source) in layer.items()}
    for key, reason in check_together(settings):
        raise ConfigError(sources.get(key, "settings"), key, reason)
    return LoadedSettings(_with_absolute_paths(settings), sources)


def _with_absolute_paths(settings: Settings) -> Settings:
    home = project_home()
    data = settings.data.model_copy(update={"dir": settings.data.dir.expanduser().absolute()})
    jars = settings.jars.model_copy(
        update={
            "spark_dir": home / settings.jars.spark_dir.expanduser(),
            "kafka_dir": home / settings.jars.kafka_dir.expanduser(),
        }
    )
    return settings.model_copy(update={"data": data, "jars": jars})


def _nested(layer: _Layer) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for path, (value, _) in layer.items():
        table = tables
        for part in path[:-1]:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                break  # a section set to a plain value: validation names it
            table = inner
        else:
            table[path[-1]] = value
    return tables


def _read_toml(path: Path) -> _Layer:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), "TOML", str(error)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "TOML", f"not UTF-8: {error.reason}") from None
    return {key: (value, str(path)) for key, value in _flatten((), tables)}


def _flatten(path: _KeyPath, value: object) -> Iterable[tuple[_KeyPath, Any]]:
    if not isinstance(value, dict) or (not value and len(path) > 1):
        yield path, value
        return
    for key, inner in value.items():
        # Below an `extra` table the dots belong to the name: `spark.ui.enabled` is one option.
        inner_path = (*path[:2], f"{path[2]}.{key}") if len(path) > 2 else (*path, str(key))
        yield from _flatten(inner_path, inner)


# How each kind of file is read, by its suffix.
_READERS: Final[dict[str, Callable[[Path], _Layer]]] = {".toml": _read_toml}


def _read_conf(path: Path) -> _Layer:
    reader = _READERS.get(path.suffix)
    if reader is None and path.exists():
        raise ConfigError(str(path), "--conf", f"cannot read a {path.suffix or 'nameless'} file, only .toml")
    try:
        return (reader or _read_toml)(path)
    except OSError as error:
        raise ConfigError(str(path), "--conf", error.strerror or str(error)) from None


def _read_environment(environ: Mapping[str, str]) -> _Layer:
    layer: _Layer = {}
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        section, *rest = name.removeprefix(ENVIRONMENT_PREFIX).split("__", 2)
        # Names of passed-through options keep their case; a dot in them is written as two underscores.
        path = (section.lower(), *(part.lower() for part in rest[:1]), *(part.replace("__", ".") for part in rest[1:]))
        text = environ[name]
        layer[path] = (_scalar(text) if len(path) > 2 else text, f"environment variable {name}")
    return layer


def _scalar(text: str) -> Any:
    """``text`` as TOML would read it (true, 5, 1.5), else as it is; for options whose type is not known here."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _config_error(problem: ErrorDetails, layer: _Layer) -> ConfigError:
    location = tuple(str(part) for part in problem["loc"])
    source = next((found for path, (_, found) in layer.items() if path == location[: len(path)]), "")
    if not source:  # the fault is a whole section: name a layer that sets something in it
        source = next((found for path, (_, found) in layer.items() if path[: len(location)] == location), "settings")
    if problem["type"] == "extra_forbidden":
        return ConfigError(source, ".".join(location), f"unknown key{_hint(location)}")
    return ConfigError(source, ".".join(location[:3]), f"{problem['msg']}, not {problem['input']!r}")


def _hint(location: Sequence[str]) -> str:
    sections = Settings.model_fields
    if len(location) == 1 or location[0] not in sections:
        known = list(sections)
    else:
        known = list(type(sections[location[0]].default).model_fields)
    close = difflib.get_close_matches(location[min(len(location), 2) - 1], known, n=1)
    return f"; did you mean {'.'.join([*location[:-1], close[0]])}?" if close else f"; known: {', '.join(known)}"
