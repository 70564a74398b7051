"""The wheel, installed into an environment without a checkout."""

import os
import re
import shutil
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from packaging.tags import compatible_tags
from packaging.utils import parse_wheel_filename

from namesrv_stream.processes import read_run_file
from tests.support.kafka import REPOSITORY, settings_for
from tests.support.processes import Process, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

_START_S = 240.0
_SHOW_JARS = """
from namesrv_stream.settings import load_settings
jars = load_settings(environ={}).settings.jars
print(jars.spark_dir, jars.kafka_dir)
"""
_START_LANE = """
import ctypes
from namesrv_stream.server.native.lane import load_library
library = load_library()
lane = library.lane_start(1 << 20, 1, (ctypes.c_uint64 * 1)(1), 1)
assert lane
library.lane_free(lane)
print("started")
"""


_REPOSITORY = Path(__file__).resolve().parents[2]
_PARTS = ("namesrv_stream", "jobs", "conf", "schemas", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
_PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@dataclass(frozen=True, slots=True)
class Installed:
    """A new virtual environment with the wheel.

    Attributes:
        prefix: Folder of the environment.
        wheel: The installed wheel.
    """

    prefix: Path
    wheel: Path

    @property
    def program(self) -> Path:
        return self.prefix / "bin" / "namesrv-stream"

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def home(self) -> Path:
        """Folder of the files that the wheel contains besides modules."""
        return self.prefix / "share" / "namesrv-stream"

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables without any path to the checkout."""
        hidden = ("PYTHONPATH", "NAMESRV_STREAM_HOME")
        return {name: value for name, value in os.environ.items() if name not in hidden}

    def run(self, *command: str | Path, cwd: Path) -> str:
        """Run a command that must succeed; returns its output."""
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=self.environ, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def install_wheel(folder: Path) -> Installed:
    """Build and install the wheel; its dependencies come from the environment of the tests."""
    done = build_wheel(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    installed = install(wheel, folder / "environment", sys.executable)
    (own,) = (installed.prefix / "lib").glob("python*/site-packages")
    (own / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return installed


def install(wheel: Path, prefix: Path, python: str) -> Installed:
    """Install a wheel without dependencies into a new environment of the given Python."""
    installed = Installed(prefix, wheel)
    _run([python, "-m", "venv", "--without-pip", prefix])
    _run([*_PIP, "--python", installed.python, "install", "--no-deps", "--no-index", wheel])
    return installed


def build_wheel(folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Build the wheel from a copy of the sources into ``folder / "dist"``; ``environ`` adds variables."""
    sources = folder / "sources"
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    for part in _PARTS:
        path = _REPOSITORY / part
        if path.is_dir():
            shutil.copytree(path, sources / part, ignore=ignored)
        else:
            sources.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, sources / part)
    command: list[str | Path] = [
        *_PIP,
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder / "dist",
        sources,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=os.environ | environ)


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install_wheel(tmp_path_factory.mktemp("wheel"))


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_installed_package_contains_all_files_of_the_checkout(installed: Installed, tmp_path: Path) -> None:
    where = installed.run(installed.python, "-c", "import namesrv_stream; print(namesrv_stream.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.prefix)
    for part in ("jobs", "conf/jars", "conf/kafka", "conf/monitoring", "schemas"):
        assert _files(installed.home / part) == _files(REPOSITORY / part)


def test_wheel_contains_the_licence(installed: Installed, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import distribution as d; own = d('namesrv-stream');"
        "print(own.metadata['License-Expression']); print(own.read_text('licenses/LICENSE'))"
    )
    expression, _, text = installed.run(installed.python, "-c", code, cwd=tmp_path).partition("\n")
    assert expression == "Apache-2.0"
    assert text.strip() == (REPOSITORY / "LICENSE").read_text(encoding="utf-8").strip()


def test_wheel_is_compatible_with_every_python(installed: Installed, tmp_path: Path) -> None:
    _, _, _, ours = parse_wheel_filename(installed.wheel.name)
    assert all(tag.interpreter == "py3" and tag.abi == "none" and tag.platform != "any" for tag in ours)
    for version in ((3, 11), (3, 14)):
        assert ours <= set(compatible_tags(version))
    (library,) = installed.prefix.rglob("*.so")
    assert library.name == "libnative_lane.so"
    content = library.read_bytes()
    assert b"lane_start" in content
    assert not any(prefix in content for prefix in (b"Py_", b"PyInit", b"libpython"))
    assert installed.run(installed.python, "-c", _START_LANE, cwd=tmp_path) == "started\n"


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_native_lane_of_the_wheel_starts_in_another_python(version: str, installed: Installed, tmp_path: Path) -> None:
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", "pass"], capture_output=True).returncode:
        pytest.skip(f"no Python {version} here")
    other = install(installed.wheel, tmp_path / "environment", python)
    assert other.run(other.python, "-c", _START_LANE, cwd=tmp_path) == "started\n"


def test_build_without_a_compiler_fails_unless_the_library_is_disabled(tmp_path: Path) -> None:
    failed = build_wheel(tmp_path / "failed", CC="false")
    assert failed.returncode != 0
    assert "command 'false' failed" in re.sub(r"'\S*/false'", "'false'", failed.stdout + failed.stderr)
    without = build_wheel(tmp_path / "without", CC="false", NATIVE_LANE="off")
    assert without.returncode == 0, without.stderr
    (wheel,) = (tmp_path / "without" / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in ZipFile(wheel).namelist() if name.endswith(".so")]


def test_jars_are_searched_in_the_installed_share_folder(installed: Installed, tmp_path: Path) -> None:
    shown = installed.run(installed.python, "-c", _SHOW_JARS, cwd=tmp_path)
    assert shown.split() == [str(installed.home / ".jars" / name) for name in ("spark", "kafka")]


@pytest.mark.kafka
@pytest.mark.spark
def test_up_of_the_installed_package_starts_all_parts(installed: Installed, tmp_path: Path) -> None:
    settings = settings_for(tmp_path / "data")
    sets: dict[str, object] = {
        "remoting.listen_host": "127.0.0.1",
        "remoting.listen_port": settings.remoting.listen_port,
        "http.listen_port": settings.http.listen_port,
        "embedded_kafka.listen_port": settings.embedded_kafka.listen_port,
        "advanced.embedded_kafka.heap": "256m",
        "streaming.driver_memory": "512m",
        "advanced.jars.spark_dir": settings.jars.spark_dir,
        "advanced.jars.kafka_dir": settings.jars.kafka_dir,
        "history.enabled": "false",
    }
    flags: list[str] = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    command: list[str | Path] = [installed.program, "up", "--data-dir", settings.data.dir, *flags]
    with Process("up", command, tmp_path / "up.log", env={"PYTHONPATH": ""}, cwd=tmp_path) as up:
        up.wait_for_log("READY remoting=", _START_S)
        wait_until(lambda: read_run_file(settings.data.run_dir / "job.json"), _START_S, "the job's first batch")
        assert up.terminate(60) == 0
