"""All options and settings for durations have the same grammar."""

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer

from namesrv_stream.cli import app
from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import Flag, Settings, load_settings
from namesrv_stream.settings.names import all_keys, public_key

#: Words in names of options that mean a duration or a point in time.
_OF_TIME: Final = re.compile(r"interval|timeout|wait|patience|quiet|spread|since|until|as-of|\bat\b|to-time")
#: Their releases fixed the meaning of a number without a unit.
_IN_SECONDS: Final = ("--patience", "--wait")
_HIDDEN: Final = "--timeout-ms"  # the name has the unit


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


_OPTIONS: Final = [
    (" ".join(path), command, parameter)
    for path, command in _commands(typer.main.get_command(app))
    for parameter in command.params
    if parameter.param_type_name == "option"
]
_DURATIONS: Final = [found for found in _OPTIONS if found[2].metavar == "DURATION"]


def _id(found: tuple[str, Any, Any]) -> str:
    return f"{found[0]} {found[2].opts[0]}"


def _parsed(parameter: Any, text: str) -> object:
    value: object = parameter.process_value(typer.Context(typer.main.get_command(app)), text)
    return value


def test_every_option_of_time_is_a_duration_or_a_point_in_time() -> None:
    others = {
        _id(found): found[2].metavar
        for found in _OPTIONS
        if _OF_TIME.search(found[2].opts[0]) and found[2].metavar not in ("DURATION", "WHEN")
    }
    assert others == {"what-if --timeout": "60s,90s,…", f"agent {_HIDDEN}": None}
    assert len(_DURATIONS) >= 10


@pytest.mark.parametrize("found", _DURATIONS, ids=_id)
def test_option_reads_a_duration_with_a_unit(found: tuple[str, Any, Any]) -> None:
    assert _parsed(found[2], "90s") == _parsed(found[2], "1.5m") == 90_000
    with pytest.raises(typer.BadParameter, match="is not a duration"):
        _parsed(found[2], "soon")


@pytest.mark.parametrize("found", _DURATIONS, ids=_id)
def test_number_without_a_unit_is_refused_unless_its_meaning_was_released(found: tuple[str, Any, Any]) -> None:
    if found[2].opts[0] in _IN_SECONDS:
        assert _parsed(found[2], "2") == 2_000
        return
    with pytest.raises(typer.BadParameter, match="2 has no unit: write 2s"):
        _parsed(found[2], "2")


_SETTINGS: Final = [key for key in all_keys() if key[1].endswith("_ms")]


@pytest.mark.parametrize("path", _SETTINGS, ids=".".join)
def test_setting_reads_a_duration_with_a_unit_or_milliseconds(path: tuple[str, str]) -> None:
    def value(text: str) -> object:
        key = public_key(".".join(path))
        try:
            settings = load_settings(environ={}, flags=[Flag("--set", key, text)]).settings
        except ConfigError as error:  # another setting does not fit this duration, or it is outside of its limits
            return error.reason
        return getattr(getattr(settings, path[0]), path[1])

    default = getattr(getattr(Settings(), path[0]), path[1])
    assert value(f"{default}ms") == value(f"{default / 1000:.3f}s") == value(str(default)) == default
    assert "is not a duration" in str(value("soon"))
