"""The tables in docs/configuration.md, made from conf/defaults.toml and from the table of RocketMQ's keys.

``python -m tests.support.settings_tables`` writes them anew; a test holds the document equal to them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from namesrv_stream.settings.rocketmq_keys import COUNTERPARTS, WITHOUT_MEANING
from namesrv_stream.settings.tls_keys import TLS_COUNTERPARTS, TLS_WITHOUT_MEANING

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = REPOSITORY / "docs" / "configuration.md"
_DEFAULTS = REPOSITORY / "conf" / "defaults.toml"
_SECTION = re.compile(r"\[([a-z_.]+)\] *(?:# (.*))?")
_SETTING = re.compile(r"([a-z_]+) = (.+?) +# (.*)")


def with_tables(document: str) -> str:
    """``document`` with its generated parts made anew."""
    for name, lines in (("settings", settings_lines()), ("rocketmq-keys", rocketmq_lines())):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        head, _, rest = document.partition(begin)
        _, found, tail = rest.partition(end)
        assert found, f"the document has no part {name}"
        document = head + begin + "\n" + "\n".join(lines) + "\n\n" + end + tail
    return document


def settings_lines() -> Iterator[str]:
    """A table of all settings: key, default, meaning."""
    yield from ("| key | default | meaning |", "|---|---|---|")
    for line in _DEFAULTS.read_text(encoding="utf-8").splitlines():
        if section := _SECTION.fullmatch(line):
            name, comment = section.groups()
            kind = "a table" if "." in name else ""
            yield f"| **`{name}`** | {kind} | {_cell(comment or '')} |"
        elif setting := _SETTING.fullmatch(line):
            key, value, comment = setting.groups()
            yield f"| `{name}.{key}` | `{value}` | {_cell(comment)} |"


def rocketmq_lines() -> Iterator[str]:
    """A table of RocketMQ's keys: what each is here, or why it does nothing."""
    yield from ("| RocketMQ's key | here |", "|---|---|")
    for name, (section, key, factor) in sorted({**COUNTERPARTS, **TLS_COUNTERPARTS}.items()):
        yield f"| `{name}` | `{section}.{key}`{f', times {factor}' if factor != 1 else ''} |"
    for name, reason in sorted({**WITHOUT_MEANING, **TLS_WITHOUT_MEANING}.items()):
        yield f"| `{name}` | no effect: {_cell(reason)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
