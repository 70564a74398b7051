"""This package as its users get it: a wheel, installed into an environment that knows no checkout."""

import os
import shutil
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_REPOSITORY = Path(__file__).resolve().parents[2]
_PARTS = ("namesrv_stream", "jobs", "conf", "schemas", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
_PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment of its own.

    Attributes:
        prefix: Its folder.
        wheel: What was installed.
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
        """What the wheel brought besides modules."""
        return self.prefix / "share" / "namesrv-stream"

    @property
    def environ(self) -> dict[str, str]:
        """Variables of a shell that knows of no checkout."""
        hidden = ("PYTHONPATH", "NAMESRV_STREAM_HOME")
        return {name: value for name, value in os.environ.items() if name not in hidden}

    def run(self, *command: str | Path, cwd: Path) -> str:
        """What a command prints; fails where it fails."""
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=self.environ, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def install_wheel(folder: Path) -> Installed:
    """Build the wheel and install it; what it depends on is taken from the environment of the tests."""
    done = build_wheel(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    installed = install(wheel, folder / "environment", sys.executable)
    (own,) = (installed.prefix / "lib").glob("python*/site-packages")
    (own / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return installed


def install(wheel: Path, prefix: Path, python: str) -> Installed:
    """Install a wheel and nothing else into a new environment of some Python."""
    installed = Installed(prefix, wheel)
    _run([python, "-m", "venv", "--without-pip", prefix])
    _run([*_PIP, "--python", installed.python, "install", "--no-deps", "--no-index", wheel])
    return installed


def build_wheel(folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Build the wheel from a copy of the sources into ``folder / "dist"``; ``environ``: further variables."""
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
