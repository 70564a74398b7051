"""How the settings come together: defaults < ``--conf`` file < environment < flags, each value with where it came from.

``NAMESRV_STREAM_DATA`` names the data directory of those who work with one installation; it replaces the default of
``data.dir`` only, so that a file, ``NAMESRV_STREAM__DATA__DIR`` or a flag can name another one.

A later layer wins key by key. Every key of every layer is checked, so a misspelt one never passes in silence;
that is why the layers are read here and not by pydantic-settings, which skips environment variables it does not know.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings.checks import check_together, doubtful
from namesrv_stream.settings.conf_file import read_conf, read_tls_config
from namesrv_stream.settings.layer import KeyPath, Layer, key_path, scalar
from namesrv_stream.settings.places import project_home
from namesrv_stream.settings.problem_text import problem_text
from namesrv_stream.settings.secrets import ENVIRONMENT_PREFIX, is_secret
from namesrv_stream.settings.sections import RENAMED, Settings

#: The data directory where nothing else names it.
DATA_VARIABLE: Final = "NAMESRV_STREAM_DATA"

_SOURCELESS: Final = "settings"
_TLS_FILES: Final = (
    *("cert_file", "key_file", "key_password_file", "trust_file"),
    *("calls_trust_file", "calls_cert_file", "calls_key_file", "calls_key_password_file"),
)


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
        warnings: What the writer of a file should know, a line each; they name file and key.
    """

    settings: Settings
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def parse_set_flag(text: str) -> Flag:
    """``--set``'s argument ``section.key=value``.

    Raises:
        ConfigError: It has another shape.
    """
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        # What follows the key may be a secret behind another separator.
        raise ConfigError("flag --set", re.split(r"[^\w.-]", text)[0], "expected section.key=value")
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
    environ = os.environ if environ is None else environ
    layer: Layer = {}
    warnings: list[str] = []
    if data_dir := environ.get(DATA_VARIABLE):
        layer["data", "dir"] = (data_dir, f"environment variable {DATA_VARIABLE}")
    if conf is not None:
        of_file, warnings = read_conf(conf)
        layer |= _renamed(of_file, warnings)
    of_flags: Layer = {}
    for flag in flags:
        path = key_path(flag.key)
        _refuse_secret(flag, path)
        of_flags[path] = (scalar(path, flag.value), f"flag {flag.name}")
    above = _renamed(_read_environment(environ), warnings) | _renamed(of_flags, warnings)
    tls_file, source = (layer | above).pop(("tls", "config_file"), ("", ""))
    if tls_file:
        of_tls, more = read_tls_config(tls_file, source)
        layer, warnings = layer | of_tls, [*warnings, *more]
    return _resolve(layer | above, warnings)


def _renamed(layer: Layer, warnings: list[str]) -> Layer:
    """The layer with today's names of keys; a line in ``warnings`` for each other name."""
    for old, new in RENAMED.items():
        if old not in layer:
            continue
        value, source = layer.pop(old)
        warnings.append(f"{source}: {'.'.join(old)}: is now {'.'.join(new)}; the next release removes the old name")
        layer.setdefault(new, (value, source))
    return layer


def _refuse_secret(flag: Flag, path: KeyPath) -> None:
    """Everybody on the machine can read a command line."""
    is_account, is_option = path[:2] == ("admin", "accounts"), path[1:2] == ("extra",)
    if is_account or path == ("tls", "key_password") or (is_option and is_secret(path[-1], flag.value)):
        reason = "is a secret, and everybody can read a command line: put it into the environment or a file"
        raise ConfigError(f"flag {flag.name}", flag.key, reason)


def _resolve(layer: Layer, warnings: Iterable[str]) -> LoadedSettings:
    try:
        settings = Settings.model_validate(_nested(layer))
    except ValidationError as error:
        raise _config_error(error.errors()[0], layer) from None
    sources = {".".join(path): source for path, (_, source) in layer.items()}
    for key, reason in check_together(settings):
        raise ConfigError(sources.get(key, _SOURCELESS), key, reason)
    return LoadedSettings(_with_absolute_paths(settings), sources, (*warnings, *doubtful(settings)))


def _with_absolute_paths(settings: Settings) -> Settings:
    home = project_home()
    data = settings.data.model_copy(update={"dir": settings.data.dir.expanduser().absolute()})
    jars = settings.jars.model_copy(
        update={
            "spark_dir": home / settings.jars.spark_dir.expanduser(),
            "kafka_dir": home / settings.jars.kafka_dir.expanduser(),
        }
    )
    admin = settings.admin.model_copy(update={"accounts_file": _absolute(settings.admin.accounts_file)})
    webhook = settings.webhook.model_copy(
        update={name: _absolute(getattr(settings.webhook, name)) for name in ("url_file", "secret_file")}
    )
    tls = settings.tls.model_copy(
        update={
            # What it says is in the other settings now; read again by a child, it would win over flags given here.
            "config_file": "",
            **{name: _absolute(getattr(settings.tls, name)) for name in _TLS_FILES},
        }
    )
    return settings.model_copy(update={"data": data, "jars": jars, "admin": admin, "tls": tls, "webhook": webhook})


def _absolute(path: str) -> str:
    return path and str(Path(path).expanduser().absolute())


def _nested(layer: Layer) -> dict[str, Any]:
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


def _read_environment(environ: Mapping[str, str]) -> Layer:
    layer: Layer = {}
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        section, *rest = name.removeprefix(ENVIRONMENT_PREFIX).split("__", 2)
        path = (section.lower(), *(part.lower() for part in rest[:1]), *rest[1:])
        if path[1:2] == ("extra",):
            # Names of passed-through options keep their case; a dot in them may be written as two underscores.
            path = (*path[:2], *(part.replace("__", ".") for part in path[2:]))
        layer[path] = (scalar(path, environ[name]), f"environment variable {name}")
    return layer


def _config_error(problem: ErrorDetails, layer: Layer) -> ConfigError:
    location = tuple(str(part) for part in problem["loc"])[:3]
    source = next((found for path, (_, found) in layer.items() if path == location[: len(path)]), "")
    if not source:  # the fault is a whole section: name a layer that sets something in it
        source = next((found for path, (_, found) in layer.items() if path[: len(location)] == location), _SOURCELESS)
    if problem["type"] == "extra_forbidden":
        return ConfigError(source, ".".join(location), f"unknown key{_hint(location)}")
    reason = problem_text(problem)
    if problem["type"] != "value_error" and not _may_hold_secrets(location):
        reason += f", not {problem['input']!r}"
    return ConfigError(source, ".".join(location), reason)


def _may_hold_secrets(location: Sequence[str]) -> bool:
    # A whole section or a table of accounts that is something else may be a secret put in the wrong place.
    return (
        location in (("admin",), ("kafka",), ("streaming",), ("data",), ("tls",), ("tls", "key_password"))
        or location[:2] == ("admin", "accounts")
        or (location[1:2] == ("extra",) and (len(location) < 3 or is_secret(location[-1], "")))
    )


def _hint(location: Sequence[str]) -> str:
    sections = Settings.model_fields
    if len(location) == 1 or location[0] not in sections:
        known = list(sections)
    else:
        known = list(type(sections[location[0]].default).model_fields)
    close = difflib.get_close_matches(location[min(len(location), 2) - 1], known, n=1)
    return f"; did you mean {'.'.join([*location[:-1], close[0]])}?" if close else f"; known: {', '.join(known)}"
