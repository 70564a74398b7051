"""The wheel, where there is no checkout."""

import re
from pathlib import Path

import pytest

from namesrv_stream.run_files import read_run_file
from tests.support.kafka import REPOSITORY, settings_for
from tests.support.processes import Process, wait_until
from tests.support.wheel import Installed, install_wheel

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

_START_S = 240.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install_wheel(tmp_path_factory.mktemp("wheel"))


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_it_is_found_in_its_own_environment_and_brings_what_the_checkout_has(
    installed: Installed, tmp_path: Path
) -> None:
    where = installed.run(installed.python, "-c", "import namesrv_stream; print(namesrv_stream.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.prefix)
    for part in ("jobs", "conf/jars", "conf/kafka", "conf/monitoring", "schemas"):
        assert _files(installed.home / part) == _files(REPOSITORY / part)


def test_it_carries_its_licence(installed: Installed, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import distribution as d; own = d('namesrv-stream');"
        "print(own.metadata['License-Expression']); print(own.read_text('licenses/LICENSE'))"
    )
    expression, _, text = installed.run(installed.python, "-c", code, cwd=tmp_path).partition("\n")
    assert expression == "Apache-2.0"
    assert text.strip() == (REPOSITORY / "LICENSE").read_text(encoding="utf-8").strip()


def test_jars_are_looked_for_beside_what_it_brought(installed: Installed, tmp_path: Path) -> None:
    shown = installed.run(installed.program, "config", "show", cwd=tmp_path)
    found = dict(re.findall(r'^(\w+_dir) = "([^"]+)"', shown, re.MULTILINE))
    assert found["spark_dir"] == str(installed.home / ".jars" / "spark")
    assert found["kafka_dir"] == str(installed.home / ".jars" / "kafka")


@pytest.mark.kafka
@pytest.mark.spark
def test_up_starts_everything_from_it(installed: Installed, tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "data")
    sets: dict[str, object] = {
        "remoting.listen_host": "127.0.0.1",
        "remoting.listen_port": settings.remoting.listen_port,
        "http.listen_port": settings.http.listen_port,
        "embedded_kafka.listen_port": settings.embedded_kafka.listen_port,
        "embedded_kafka.heap": "256m",
        "streaming.driver_memory": "512m",
        "jars.spark_dir": settings.jars.spark_dir,
        "jars.kafka_dir": settings.jars.kafka_dir,
        "history.enabled": "false",
    }
    flags: list[str] = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    command: list[str | Path] = [installed.program, "up", "--data-dir", settings.data.dir, *flags]
    with Process("up", command, tmp_path / "up.log", env={"PYTHONPATH": ""}, cwd=tmp_path) as up:
        up.wait_for_log("READY remoting=", _START_S)
        wait_until(lambda: read_run_file(settings.data.run_dir / "job.json"), _START_S, "the job's first batch")
        assert up.terminate(60) == 0
