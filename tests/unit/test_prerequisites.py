"""Missing prerequisites are named with a remedy, also before there is a virtual environment."""

import subprocess
import sys
from pathlib import Path

import pytest

from namesrv_stream.errors import PrerequisiteMissing
from namesrv_stream.prerequisites import find_java, kafka_jars, parse_java_major

REPOSITORY = Path(__file__).resolve().parents[2]


def _tool(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def _java(folder: Path, version: str) -> Path:
    return _tool(folder, "java", f"echo 'openjdk version \"{version}\" 2025-01-01' >&2")


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_java_major_version_is_read(text: str, major: int | None) -> None:
    assert parse_java_major(text) == major


def test_java_on_the_path_is_found(tmp_path: Path) -> None:
    java = _java(tmp_path, "17.0.1")
    assert find_java({"PATH": str(tmp_path)}) == java


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    _java(tmp_path / "path", "17.0.1")
    java = _java(tmp_path / "home" / "bin", "17.0.2")
    assert find_java({"PATH": str(tmp_path / "path"), "JAVA_HOME": str(tmp_path / "home")}) == java


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0", "21.0.1"])
def test_another_java_is_refused(tmp_path: Path, version: str) -> None:
    _java(tmp_path, version)
    with pytest.raises(PrerequisiteMissing) as missing:
        find_java({"PATH": str(tmp_path)})
    assert missing.value.exit_code == 3
    assert "Java 17 JDK" in missing.value.remedy


@pytest.mark.parametrize("environ", [{"PATH": ""}, {"PATH": "", "JAVA_HOME": "/absent"}])
def test_missing_java_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(PrerequisiteMissing) as missing:
        find_java(environ)
    assert "JAVA_HOME" in missing.value.name


def test_missing_jars_name_the_folder_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteMissing) as missing:
        kafka_jars(tmp_path).require()
    assert str(tmp_path) in missing.value.name
    assert "make setup" in missing.value.remedy


def test_jars_that_are_there_pass(tmp_path: Path) -> None:
    (tmp_path / "kafka_2.13-4.3.1.jar").touch()
    kafka_jars(tmp_path).require()


def _check(
    folder: Path, python: str = sys.executable, also: tuple[str, ...] = ("jdk", "maven"), **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Run conf/check-prerequisites with only the tools in ``folder`` and a few of POSIX on the PATH."""
    for tool in ("sed", "head"):
        link = folder / tool
        link.symlink_to(next(path for path in (Path("/bin") / tool, Path("/usr/bin") / tool) if path.exists()))
    return subprocess.run(
        ["/bin/sh", REPOSITORY / "conf" / "check-prerequisites", python, *also],
        env={"PATH": str(folder), **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_set_up_check_passes_with_all_tools(tmp_path: Path) -> None:
    _java(tmp_path, "17.0.1")
    _tool(tmp_path, "javac", "exit 0")
    _tool(tmp_path, "mvn", "echo 'Apache Maven 3.8.7'")
    outcome = _check(tmp_path)
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_set_up_check_names_everything_missing_at_once(tmp_path: Path) -> None:
    outcome = _check(tmp_path, python="python9")
    assert outcome.returncode == 3
    for word in ("python9", "Java 17 JDK", "install Maven 3.8"):
        assert word in outcome.stderr


@pytest.mark.parametrize(
    ("java", "mvn", "has_javac", "word"),
    [
        ("11.0.1", "3.9.9", True, "Java 11"),
        ("17.0.1", "3.6.3", True, "Maven 3 6"),
        ("17.0.1", "3.9.9", False, "no javac"),
    ],
)
def test_set_up_check_refuses_wrong_versions(tmp_path: Path, java: str, mvn: str, has_javac: bool, word: str) -> None:
    _java(tmp_path, java)
    _tool(tmp_path, "mvn", f"printf '\\033[1mApache Maven {mvn}\\033[m\\n'")
    if has_javac:
        _tool(tmp_path, "javac", "exit 0")
    outcome = _check(tmp_path)
    assert (outcome.returncode, word in outcome.stderr) == (3, True), outcome.stderr


def test_set_up_check_refuses_an_old_python(tmp_path: Path) -> None:
    old = _tool(tmp_path / "old", "python3", 'case "$*" in *version_info*) exit 1;; *) echo Python 3.8.1;; esac')
    outcome = _check(tmp_path, python=str(old))
    assert outcome.returncode == 3
    assert "Python 3.8.1, older than 3.11" in outcome.stderr


def test_set_up_check_shows_the_error_of_a_python_that_does_not_run(tmp_path: Path) -> None:
    shim = _tool(tmp_path / "shims", "python3.11", "echo 'pyenv: python3.11: command not found' >&2; exit 127")
    outcome = _check(tmp_path, python=str(shim))
    assert outcome.returncode == 3
    assert f"error: {shim} does not run: pyenv: python3.11: command not found\n" in outcome.stderr
    assert "older than" not in outcome.stderr


def test_running_needs_neither_maven_nor_a_compiler_for_java(tmp_path: Path) -> None:
    _java(tmp_path, "17.0.1")
    outcome = _check(tmp_path, also=())
    assert (outcome.returncode, outcome.stderr) == (0, "")


@pytest.mark.parametrize("java_home", ["absent", "old", "silent", None])
def test_set_up_check_and_product_have_the_same_message_about_java(tmp_path: Path, java_home: str | None) -> None:
    _java(tmp_path / "old" / "bin", "11.0.1")
    _tool(tmp_path / "silent" / "bin", "java", "exit 1")
    environ = {} if java_home is None else {"JAVA_HOME": str(tmp_path / java_home)}
    outcome = _check(tmp_path, also=(), **environ)
    with pytest.raises(PrerequisiteMissing) as missing:
        find_java({"PATH": str(tmp_path), **environ})
    assert outcome.stderr == f"error: {missing.value.name}\n       {missing.value.remedy}\n"
