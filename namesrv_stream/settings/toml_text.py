"""Settings as TOML text, as ``-p``, ``config show`` and ``up``'s effective configuration print them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from namesrv_stream.settings.sections import Settings


def to_toml(settings: Settings, sources: Mapping[str, str] | None = None) -> str:
    """``settings`` as a TOML document that :func:`load_settings` reads back to the same.

    Args:
        settings: What to write; every key is.
        sources: ``section.key`` → where it came from. If given, each line ends with that as a comment.
    """
    lines: list[str] = []
    for section, table in settings.model_dump().items():
        lines += ["", f"[{section}]"]
        passed_through = {}
        for key, value in table.items():
            if isinstance(value, dict):
                passed_through[key] = value
            else:
                lines.append(_line(key, value, f"{section}.{key}", sources))
        for key, options in passed_through.items():
            lines += ["", f"[{section}.{key}]"] if options else []
            lines += [_line(name, value, f"{section}.{key}.{name}", sources) for name, value in options.items()]
    return "\n".join(lines[1:]) + "\n"


def _line(key: str, value: object, dotted: str, sources: Mapping[str, str] | None) -> str:
    name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)
    line = f"{name} = {_literal(value)}"
    return line if sources is None else f"{line}  # {_one_line(sources.get(dotted, 'default'))}"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return _quoted(str(value))
    raise TypeError(f"no setting has the type {type(value).__name__}")


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL; characters beyond ASCII stand as they are (surrogate pairs are not TOML).
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
