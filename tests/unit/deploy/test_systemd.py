"""The systemd units agree with the command line, each other and docs/deploy.md; the tests do not use systemd."""

from configparser import ConfigParser
from pathlib import Path
from typing import Final

import pytest

from namesrv_stream.errors import ConfigError, KafkaUnreachable
from tests.support.deployment import DEPLOY, REPOSITORY, plain_secrets

_FOLDER: Final = DEPLOY / "systemd"
_UNITS: Final = sorted(_FOLDER.glob("*.service"))
_DATA_DIR: Final = "/var/lib/namesrv-stream"
_PROGRAM: Final = "/opt/namesrv-stream/bin/namesrv-stream"


def _read(path: Path) -> ConfigParser:
    """Read a unit as systemd does, if no key is given twice."""
    unit = ConfigParser(delimiters=("=",), comment_prefixes=("#", ";"), interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text(encoding="utf-8"), source=str(path))
    return unit


_COMMON: Final = _read(_FOLDER / "namesrv-stream-.service.d" / "common.conf")


def test_units_exist_for_one_machine_and_for_every_part() -> None:
    assert [path.stem.removeprefix("namesrv-stream-") for path in _UNITS] == [
        "history",
        "job",
        "serve",
        "up",
        "webhook",
    ]


@pytest.mark.parametrize("path", _UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_that_exists_in_the_data_directory(path: Path) -> None:
    program, *words = _read(path)["Service"]["ExecStart"].split()
    assert program == _PROGRAM
    assert words[1:] == ["--conf", "/etc/namesrv-stream/namesrv.toml", "--data-dir", _DATA_DIR]


@pytest.mark.parametrize("path", _UNITS, ids=lambda path: path.stem)
def test_common_settings_are_not_repeated_in_units(path: Path) -> None:
    assert path.stem.startswith("namesrv-stream-"), "systemd would not read the common settings for it"
    unit = _read(path)
    assert not {(name, key) for name in unit.sections() for key in unit[name]} & {
        (name, key) for name in _COMMON.sections() for key in _COMMON[name]
    }


def test_all_in_one_unit_conflicts_with_the_single_parts() -> None:
    others = {path.name for path in _UNITS if path.stem != "namesrv-stream-up"}
    assert set(_read(_FOLDER / "namesrv-stream-up.service")["Unit"]["Conflicts"].split()) == others


def test_unit_restarts_without_kafka_but_not_with_a_wrong_configuration() -> None:
    service = _COMMON["Service"]
    assert service["Restart"] == "on-failure"
    prevented = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert ConfigError.exit_code in prevented
    assert KafkaUnreachable.exit_code not in prevented
    assert _COMMON["Unit"]["StartLimitIntervalSec"] == "0"


def test_unit_runs_as_its_own_user_and_writes_only_to_the_data_directory() -> None:
    service = _COMMON["Service"]
    sysusers = (_FOLDER / "namesrv-stream.sysusers.conf").read_text(encoding="utf-8").splitlines()[-1].split()
    assert sysusers[:2] == ["u", service["User"]]
    assert sysusers[-1] == _DATA_DIR == service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert service["ProtectSystem"] == "strict"
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert "MemoryDenyWriteExecute" not in service, "the JVM would not start"
    assert plain_secrets(service) == []


def test_documentation_installs_existing_units() -> None:
    text = (REPOSITORY / "docs" / "deploy.md").read_text(encoding="utf-8")
    for path in (*_FOLDER.iterdir(), Path(_PROGRAM)):
        name = path.name if path.parent == _FOLDER and path.suffix != ".service" else str(path)
        if path.suffix != ".service":
            assert name in text, name
    for path in _UNITS:
        assert path.stem in text, path.stem
