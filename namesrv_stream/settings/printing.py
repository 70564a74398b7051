"""Prints settings as TOML or JSON, without secrets: for ``-p``, ``config show`` and ``up``'s effective configuration.

Advanced settings are printed only if they differ from their defaults.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from namesrv_stream.settings.layers import with_absolute_paths
from namesrv_stream.settings.names import is_advanced
from namesrv_stream.settings.secrets import is_secret
from namesrv_stream.settings.sections import KafkaSettings, Settings


def to_toml(settings: Settings, sources: Mapping[str, str] | None = None) -> str:
    """Return ``settings`` as a TOML document, from which :func:`load_settings` reads the same values except secrets.

    A secret is replaced by a comment: a mask would be read as a secret that everybody knows.

    Args:
        settings: What to write.
        sources: A key as users write it → where it came from. If given, each line ends with that as a comment.
    """
    lines: list[str] = []
    for table, values in _tables(settings).items():
        lines += ["", f"[{table}]"]
        passed_through = {}
        for key, value in values.items():
            if isinstance(value, dict):
                passed_through[key] = value
            elif isinstance(value, SecretStr):
                shown = None if value.get_secret_value() else '""'
                lines.append(_line(key, shown, f"{table}.{key}", sources))
            else:
                lines.append(_line(key, _literal(value), f"{table}.{key}", sources))
        for key, options in passed_through.items():
            lines += ["", f"[{table}.{key}]"] if options else []
            for name, value in options.items():
                shown = None if is_secret(name, value) else _literal(value)
                lines.append(_line(name, shown, f"{table}.{key}.{name}", sources))
    return "\n".join(lines[1:]) + "\n"


def to_json(settings: Settings, sources: Mapping[str, str]) -> str:
    """Return ``settings`` as JSON: a key as users write it → ``value`` and ``source``.

    A secret has ``is_secret`` instead of a value.

    Args:
        settings: What to write.
        sources: A key as users write it → where it came from; other keys have their default.
    """
    found: dict[str, dict[str, object]] = {}
    for table, values in _tables(settings).items():
        for key, value in values.items():
            entries = {f".{name}": option for name, option in value.items()} if isinstance(value, dict) else {"": value}
            for name, entry in entries.items():
                dotted = f"{table}.{key}{name}"
                is_hidden = (isinstance(entry, SecretStr) and bool(entry.get_secret_value())) or (
                    bool(name) and is_secret(name[1:], entry)
                )
                shown: dict[str, object] = {"is_secret": True} if is_hidden else {"value": _json_value(entry)}
                found[dotted] = {**shown, "source": sources.get(dotted, "default")}
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _tables(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return the name of every table → the keys and values to print in it; the advanced tables come last."""
    kafka = KafkaSettings(broker_events_topic=settings.kafka.broker_events_topic)  # another default depends on it
    defaults = with_absolute_paths(Settings(kafka=kafka)).model_dump()
    documented: dict[str, dict[str, Any]] = {}
    advanced: dict[str, dict[str, Any]] = {}
    for section, table in settings.model_dump().items():
        for key, value in table.items():
            if not is_advanced((section, key)):
                documented.setdefault(section, {})[key] = value
            elif value != defaults[section][key]:
                advanced.setdefault(f"advanced.{section}", {})[key] = value
    return documented | advanced


def _json_value(value: object) -> object:
    if isinstance(value, SecretStr):
        return ""
    return str(value) if isinstance(value, Path) else value


def _line(key: str, shown: str | None, dotted: str, sources: Mapping[str, str] | None) -> str:
    name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)
    line = f"# {name} is set, and not shown" if shown is None else f"{name} = {shown}"
    return line if sources is None else f"{line}  # {_one_line(sources.get(dotted, 'default'))}"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return _quoted(str(value))
    if isinstance(value, tuple):
        return f"[{', '.join(_literal(item) for item in value)}]"
    raise TypeError(f"no setting has the type {type(value).__name__}")


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL; characters beyond ASCII stand as they are (surrogate pairs are not TOML).
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
