"""Commands and options in README and docs exist; the tests parse the commands without running them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from namesrv_stream.cli import app

_ROOT: Final = Path(__file__).resolve().parents[3]
_DOCUMENTS: Final = ["README.md", *(str(p.relative_to(_ROOT)) for p in sorted((_ROOT / "docs").glob("*.md")))]
_BLOCK: Final = re.compile(r"^ *```(.*)\n((?:.*\n)*?) *```$", re.MULTILINE)
_COMMAND: Final = re.compile(r"^[ $]*(?:sudo -u \S+ )?(?:\S*/)?namesrv-stream +(.*)$", re.MULTILINE)


def _commands(text: str) -> Iterator[list[str]]:
    """Return the words after `namesrv-stream` in blocks of shell commands."""
    for language, block in _BLOCK.findall(text):
        if language not in ("", "sh"):
            continue
        for line in _COMMAND.findall(block.replace("\\\n", " ")):
            words = shlex.split(line, comments=True)
            yield [word for word in words if word not in ("&", "|")]


def _problem(words: list[str]) -> str:
    """Return the words of a command that the command line does not know; "" if it knows all."""
    command: Any = typer.main.get_command(app)
    path: list[str] = []
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        name, *words = words
        path.append(name)
        if name not in command.commands:
            return f"{' '.join(path)}: there is no such command"
        command = command.commands[name]
    known = {"--help", "--version"}
    known.update(flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts))
    unknown = [word for word in (w.partition("=")[0] for w in words) if _is_flag(word) and word not in known]
    return f"{' '.join(path)}: there is no {unknown[0]}" if unknown else ""


def _is_flag(word: str) -> bool:
    return re.fullmatch(r"--?[a-zA-Z][a-zA-Z-]*", word) is not None


@pytest.mark.parametrize("document", _DOCUMENTS)
def test_shown_commands_and_their_options_exist(document: str) -> None:
    commands = list(_commands((_ROOT / document).read_text(encoding="utf-8")))
    assert [problem for words in commands if (problem := _problem(words))] == []


def test_commands_are_found() -> None:
    found = [words[0] for words in _commands((_ROOT / "docs/tutorial.md").read_text(encoding="utf-8"))]
    assert {"agent", "status", "route", "history", "config", "what-if"} <= set(found)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("status --watch", ""),
        ("config set liveness.default_timeout_ms 60000", ""),
        ("route Orders --as-of=-3m", ""),
        ("statsu", "statsu: there is no such command"),
        ("status --wach", "status: there is no --wach"),
    ],
)
def test_wrong_command_is_detected(command: str, problem: str) -> None:
    assert _problem(shlex.split(command)) == problem
