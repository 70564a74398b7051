"""The choice of the C compiler."""

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.bench.compiler import NoCompiler, compiler


@pytest.fixture(autouse=True)
def _no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def _program(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_compiler_of_the_wheel_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert compiler() == [sys.executable, "-m", "ziglang", "cc"]


def test_without_the_wheel_the_compiler_of_the_machine_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    clang = _program(tmp_path / "clang")
    assert compiler() == [str(clang)]
    gcc = _program(tmp_path / "gcc")
    assert compiler() == [str(gcc)]


def test_without_a_compiler_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCompiler, match="make bench"):
        compiler()
