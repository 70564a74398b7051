"""Merges the layers of the settings, and says where each value came from.

The layers are defaults < ``--conf`` file < environment < flags; a later layer wins key by key. Every key of every layer
is checked, so a misspelt key is always reported. Therefore this module reads the layers, and not pydantic-settings,
which skips environment variables that it does not know.

``NAMESRV_STREAM_DATA`` replaces the default of ``data.dir`` only, so that a file, ``NAMESRV_STREAM__DATA__DIR`` or a
flag can name another directory.
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
from namesrv_stream.settings.names import (
    Given,
    KeyPath,
    Layer,
    all_keys,
    is_advanced,
    key_path,
    public_key,
    public_path,
    scalar,
    with_internal_paths,
)
from namesrv_stream.settings.secrets import ENVIRONMENT_PREFIX, is_secret
from namesrv_stream.settings.sections import Settings
from namesrv_stream.settings.values import problem_text, project_home

#: The variable with the default of ``data.dir``.
DATA_VARIABLE: Final = "NAMESRV_STREAM_DATA"
#: The file in ``data.run_dir`` to which ``up`` writes its settings, and from which its parts read them.
EFFECTIVE_FILE: Final = "effective.toml"

_SOURCELESS: Final = "settings"
#: Flags by their names in the release before this one, which work for one more release.
_RENAMED_FLAGS: Final = {"--listen-port": "--remoting-port"}
_TLS_FILES: Final = (
    *("cert_file", "key_file", "key_password_file", "trust_file"),
    *("calls_trust_file", "calls_cert_file", "calls_key_file", "calls_key_password_file"),
)


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting given on the command line.

    Attributes:
        name: The flag as typed, for messages: ``--http-port`` or ``--set``.
        key: ``section.key``.
        value: The given text.
    """

    name: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings and where each of them came from.

    Attributes:
        settings: The merged and checked settings; their paths are absolute.
        sources: A key as users write it → a file, an environment variable or a flag; absent for a default.
        warnings: Warnings for the author of a layer, one line each, with the layer and the key.
    """

    settings: Settings
    sources: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def parse_set_flag(text: str) -> Flag:
    """Parse the argument of ``--set``, ``section.key=value``.

    Raises:
        ConfigError: The text has a different form.
    """
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        # The text after the key may be a secret, behind another separator.
        raise ConfigError("flag --set", re.split(r"[^\w.-]", text)[0], "expected section.key=value")
    return Flag("--set", key.strip(), value.strip())


def load_settings(
    conf: Path | None = None, environ: Mapping[str, str] | None = None, flags: Iterable[Flag] = ()
) -> LoadedSettings:
    """Read every layer, merge them, and check the result.

    Args:
        conf: The file given by ``--conf``.
        environ: The environment; the process's own if None.
        flags: Settings of the command line; a later one wins.

    Raises:
        ConfigError: A key is unknown or a value is invalid. The error names the layer and the key.
    """
    environ = os.environ if environ is None else environ
    layer: Layer = {}
    warnings: list[str] = []
    if data_dir := environ.get(DATA_VARIABLE):
        layer["data", "dir"] = Given(data_dir, f"environment variable {DATA_VARIABLE}")
    if conf is not None:
        of_file, warnings = read_conf(conf)
        layer |= with_internal_paths(of_file, warnings)
    above = with_internal_paths(_read_environment(environ), warnings)
    above |= with_internal_paths(_read_flags(flags, warnings), warnings)
    tls_config = (layer | above).pop(("tls", "config_file"), Given("", ""))
    if tls_config.value:
        of_tls, more = read_tls_config(tls_config.value, tls_config.source)
        layer |= with_internal_paths(of_tls, more)
        warnings += more
    layer |= above
    if conf is None or conf.name != EFFECTIVE_FILE:  # `up` has warned already
        warnings += _warning_of_advanced(layer)
    return _resolve(layer, warnings)


def _read_flags(flags: Iterable[Flag], warnings: list[str]) -> Layer:
    layer: Layer = {}
    for flag in flags:
        path = key_path(flag.key)
        _refuse_secret(flag, path)
        if new := _RENAMED_FLAGS.get(flag.name):
            warnings.append(f"flag {flag.name}: is now {new}; the next release removes the old name")
        layer[path] = Given(scalar(path, flag.value), f"flag {flag.name}")
    return layer


def _warning_of_advanced(layer: Layer) -> list[str]:
    """Return one line that names all advanced settings of a layer, or none."""
    keys = [
        ".".join(public_path(path)) for path, given in layer.items() if is_advanced(path) and not given.is_rocketmq_name
    ]
    if not keys:
        return []
    return [f"advanced settings are not supported and may change in any release: {', '.join(sorted(keys))}"]


def _refuse_secret(flag: Flag, path: KeyPath) -> None:
    """Refuse secrets on the command line, which everybody on the machine can read."""
    is_account, is_option = path[:2] == ("admin", "accounts"), path[1:2] == ("extra",)
    is_password = path[-2:] == ("tls", "key_password")
    if is_account or is_password or (is_option and is_secret(path[-1], flag.value)):
        reason = "is a secret, and everybody can read a command line: put it into the environment or a file"
        raise ConfigError(f"flag {flag.name}", flag.key, reason)


def _resolve(layer: Layer, warnings: Iterable[str]) -> LoadedSettings:
    try:
        settings = Settings.model_validate(_nested(layer))
    except ValidationError as error:
        raise _config_error(error.errors()[0], layer) from None
    sources = {".".join(public_path(path)): given.source for path, given in layer.items()}
    for key, reason in check_together(settings):
        shown = public_key(key)
        raise ConfigError(sources.get(shown, _SOURCELESS), shown, reason)
    return LoadedSettings(with_absolute_paths(settings), sources, (*warnings, *doubtful(settings)))


def with_absolute_paths(settings: Settings) -> Settings:
    """Return ``settings`` with absolute paths: jars below :func:`project_home`, others below the current directory."""
    home = project_home()
    data = settings.data.model_copy(update={"dir": settings.data.dir.expanduser().absolute()})
    jars = settings.jars.model_copy(
        update={
            "spark_dir": home / settings.jars.spark_dir.expanduser(),
            "kafka_dir": home / settings.jars.kafka_dir.expanduser(),
        }
    )
    admin = settings.admin.model_copy(update={"accounts_file": _absolute(settings.admin.accounts_file)})
    remoting = settings.remoting.model_copy(update={"view_files": tuple(map(_absolute, settings.remoting.view_files))})
    webhook = settings.webhook.model_copy(
        update={name: _absolute(getattr(settings.webhook, name)) for name in ("url_file", "secret_file")}
    )
    tls = settings.tls.model_copy(
        update={
            # Its values are in the other settings now; a child that reads it again would override this process's flags.
            "config_file": "",
            **{name: _absolute(getattr(settings.tls, name)) for name in _TLS_FILES},
        }
    )
    return settings.model_copy(
        update={"remoting": remoting, "data": data, "jars": jars, "admin": admin, "tls": tls, "webhook": webhook}
    )


def _absolute(path: str) -> str:
    return path and str(Path(path).expanduser().absolute())


def _nested(layer: Layer) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for path, given in layer.items():
        table = tables
        for part in path[:-1]:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                break  # a section set to a plain value: validation names it
            table = inner
        else:
            table[path[-1]] = given.value
    return tables


def _read_environment(environ: Mapping[str, str]) -> Layer:
    layer: Layer = {}
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        section, *rest = name.removeprefix(ENVIRONMENT_PREFIX).split("__", 2)
        path = (section.lower(), *(part.lower() for part in rest[:1]), *rest[1:])
        if path[0] == "advanced":
            path = tuple(part.lower() for part in path)
        elif path[1:2] == ("extra",):
            # Names of passed-through options keep their case; a dot in them may be written as two underscores.
            path = (*path[:2], *(part.replace("__", ".") for part in path[2:]))
        layer[path] = Given(scalar(path, environ[name]), f"environment variable {name}")
    return layer


def _config_error(problem: ErrorDetails, layer: Layer) -> ConfigError:
    location = tuple(str(part) for part in problem["loc"])[:3]
    shown = ".".join((*public_path(location[:2]), *location[2:]))
    source = next((given.source for path, given in layer.items() if path == location[: len(path)]), "")
    if not source:  # the error is a whole section: name a layer that sets something in it
        source = next((g.source for path, g in layer.items() if path[: len(location)] == location), _SOURCELESS)
    if problem["type"] == "extra_forbidden":
        return ConfigError(source, shown, f"unknown key{_hint(location)}")
    reason = problem_text(problem)
    if problem["type"] != "value_error" and not _may_hold_secrets(location):
        reason += f", not {problem['input']!r}"
    return ConfigError(source, shown, reason)


def _may_hold_secrets(location: Sequence[str]) -> bool:
    # A value instead of a section or of a table of accounts may be a secret in the wrong place.
    return (
        location in (("admin",), ("kafka",), ("streaming",), ("data",), ("tls",), ("tls", "key_password"))
        or location[:2] == ("admin", "accounts")
        or (location[1:2] == ("extra",) and (len(location) < 3 or is_secret(location[-1], "")))
    )


def _hint(location: KeyPath) -> str:
    if len(location) == 1 or location[0] not in Settings.model_fields:
        known = {section: section for section in Settings.model_fields}
    else:
        known = {key: ".".join(public_path((section, key))) for section, key in all_keys() if section == location[0]}
    close = difflib.get_close_matches(location[min(len(location), 2) - 1], known, n=1)
    return f"; did you mean {known[close[0]]}?" if close else f"; known: {', '.join(known)}"
