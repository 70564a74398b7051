"""The Dockerfile agrees with the code; the tests do not build the image."""

import json
import re
from pathlib import PurePosixPath

from namesrv_stream.settings import Settings
from tests.support.deployment import (
    DOCKERFILE,
    REPOSITORY,
    image_environment,
    instructions,
    plain_secrets,
    settings_with,
)

_HOME = PurePosixPath("/opt/namesrv-stream/share/namesrv-stream")  # where a wheel installs files that are not modules


def _arguments(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def _copied() -> list[tuple[str, str]]:
    """Return (source, target) of the files copied from the checkout."""
    plain = [rest.split() for rest in _arguments("COPY") if not rest.startswith("--from")]
    return [(source, words[-1]) for words in plain for source in words[:-1]]


def test_image_variables_are_settings_and_no_secrets() -> None:
    settings = settings_with({})
    assert str(settings.data.dir) == "/data"
    assert settings.data.tables == "/tables"
    assert plain_secrets(image_environment()) == []


def test_copied_files_exist_and_are_sent_to_the_builder() -> None:
    sent = [
        line[1:]
        for line in DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    ]
    for source, _ in _copied():
        assert (REPOSITORY / source).exists(), source
        assert any(source == path or source.startswith(f"{path}/") for path in sent), source


def test_image_builds_the_wheel_from_all_its_sources() -> None:
    sources = {source for source, _ in _copied()}
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    data = re.findall(r'^"share/namesrv-stream/\S+" = \["([a-z]+)/', text, re.MULTILINE)
    assert data
    assert {"namesrv_stream", "pyproject.toml", *data} <= sources


def test_jars_are_where_the_installed_package_searches_them() -> None:
    (target,) = (rest.split()[-1] for rest in _arguments("COPY") if rest.startswith("--from=jars"))
    assert PurePosixPath(target) == _HOME / Settings().jars.spark_dir


def test_image_exposes_the_ports_that_servers_listen_on() -> None:
    settings = settings_with({})
    (ports,) = _arguments("EXPOSE")
    assert [int(port) for port in ports.split()] == [settings.remoting.listen_port, settings.http.listen_port]
    (check,) = _arguments("HEALTHCHECK")
    assert f"http://127.0.0.1:{settings.http.listen_port}/readyz" in check


def test_image_runs_the_program_unprivileged_and_forwards_signals() -> None:
    (user,) = _arguments("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    (entry,), (command,) = _arguments("ENTRYPOINT"), _arguments("CMD")
    assert json.loads(entry) == ["tini", "--", "namesrv-stream"]
    assert json.loads(command) == ["serve"]


def test_every_package_is_pinned_with_its_hash_to_the_tested_version() -> None:
    pin = re.compile(r"^([a-z0-9._-]+==\S+) \\$", re.MULTILINE)
    image = (DOCKERFILE.parent / "requirements.lock").read_text(encoding="utf-8")
    tested = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8")
    pins = pin.findall(image)
    assert len(pins) > 20
    assert set(pins) <= set(pin.findall(tested))
    assert image.count("--hash=sha256:") >= len(pins)
