"""The program accepts every command of deploy/ and docs/deploy.md, with the variables and mounted files of its process.

A temporary directory takes the place of the root directory. The tests start no process and no container.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import typer
import yaml

from namesrv_stream.cli import app
from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import Flag, Settings, load_settings, parse_set_flag
from namesrv_stream.settings.checks import named_files
from tests.support.deployment import (
    DEPLOY,
    KUBERNETES,
    REPOSITORY,
    compose,
    helm_objects,
    image_environment,
    instructions,
    kubernetes_objects,
    kubernetes_settings,
)

_PAGE: Final = (REPOSITORY / "docs" / "deploy.md").read_text(encoding="utf-8")
#: A file of the operator in the current directory, by the name that the documentation uses.
_OPERATORS_FILE: Final = "namesrv.toml"


class Deployed(NamedTuple):
    """A command as a platform starts it.

    Attributes:
        where: The file and the part, for messages.
        words: The command line after ``namesrv-stream``.
        environment: The variables of the process.
        files: The mounted files, which are empty; relative ones are in the current directory.
    """

    where: str
    words: list[str]
    environment: Mapping[str, str] = {}
    files: tuple[str, ...] = ()


def _of_image() -> Iterator[Deployed]:
    (command,) = (rest for name, rest in instructions() if name == "CMD")
    yield Deployed("Dockerfile", json.loads(command), image_environment())


def _of_compose() -> Iterator[Deployed]:
    for name, service in compose()["services"].items():
        if service["image"] == "namesrv-stream":
            environment = image_environment() | service["environment"]
            files = tuple(f"/run/secrets/{secret}" for secret in service["secrets"])
            yield Deployed(f"compose.yaml: {name}", service["command"], environment, files)


def _of_kubernetes(where: str, objects: list[dict[str, Any]], settings: Mapping[str, str]) -> Iterator[Deployed]:
    secret = yaml.safe_load((KUBERNETES / "secret.example.yaml").read_text(encoding="utf-8"))
    for workload in (found for found in objects if found["kind"] in ("StatefulSet", "Deployment")):
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "secrets")
        files = tuple(f"{mount['mountPath']}/{key}" for key in secret["stringData"])
        environment = image_environment() | dict(settings)
        for variable in container.get("env", []):
            value = variable.get("value", f"{workload['metadata']['name']}-0")  # or else the pod's name
            for name, known in environment.items():
                value = value.replace(f"$({name})", known)
            environment[variable["name"]] = value
        yield Deployed(f"{where}: {workload['metadata']['name']}", container["args"], environment, files)


def _of_helm() -> Iterator[Deployed]:
    objects = helm_objects()
    (settings,) = (found["data"] for found in objects if found["kind"] == "ConfigMap")
    return _of_kubernetes("helm", objects, settings)


def _of_systemd() -> Iterator[Deployed]:
    """Yield the units' commands, with the files that docs/deploy.md tells the operator to create."""
    files = tuple(re.findall(r"^touch (/etc/\S+)", _PAGE, re.MULTILINE))
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        unit = ConfigParser(delimiters=("=",), interpolation=None)
        unit.read(path)
        yield Deployed(path.name, unit["Service"]["ExecStart"].split()[1:], {}, files)


_SPANS: Final = re.compile(r"^```sh\n(.*?)^```$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
_OF_PROGRAM: Final = re.compile(r"^(?:docker compose exec (\w+) |sudo -u \w+ )?(?:\S*/)?namesrv-stream (.+)$")
_OF_SPARK: Final = re.compile(r"^spark-submit .*\$home/(jobs/\w+\.py)(.*)$")


def _of_page() -> Iterator[Deployed]:
    services = {found.where.split()[-1]: found for found in _of_compose()}
    texts = [block or inline for block, inline in _SPANS.findall(_PAGE)]
    for line in "\n".join(texts).replace("\\\n", " ").splitlines():
        if found := _OF_PROGRAM.match(line):
            service = services[found[1]] if found[1] else Deployed("", [], {}, (_OPERATORS_FILE,))
            words = [_OPERATORS_FILE if word == "FILE" else word for word in shlex.split(found[2], comments=True)]
            yield service._replace(where=f"deploy.md: {line}", words=words)
        elif found := _OF_SPARK.match(line):
            (command,) = re.findall(r'insert\(1, "([\w-]+)"\)', (REPOSITORY / found[1]).read_text(encoding="utf-8"))
            yield Deployed(f"deploy.md: {line}", [command, *shlex.split(found[2])], {}, (_OPERATORS_FILE,))


_DEPLOYED: Final = [
    *_of_image(),
    *_of_compose(),
    *_of_kubernetes("kubernetes", kubernetes_objects(), kubernetes_settings()),
    *_of_helm(),
    *_of_systemd(),
    *_of_page(),
]


def _accepted(deployed: Deployed, root: Path) -> Settings:
    """Lay out the files of a command below ``root``, parse the command, and return the settings that it loads."""

    def below_root(text: str) -> str:
        return f"{root}{text}" if text.startswith("/") else text

    for file in deployed.files:
        path = root / file.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    name, *words = map(below_root, deployed.words)
    group: Any = typer.main.get_command(app)
    given = group.commands[name].make_context(name, words).params
    flags = [parse_set_flag(text) for text in given["sets"] or ()]
    if given["data_dir"] is not None:
        flags.append(Flag("--data-dir", "data.dir", given["data_dir"]))
    environment = {key: below_root(value) for key, value in deployed.environment.items()}
    return load_settings(given["conf"] and root / given["conf"], environment, flags).settings


@pytest.mark.parametrize("deployed", _DEPLOYED, ids=lambda deployed: deployed.where)
def test_the_program_accepts_the_command_and_finds_its_files(deployed: Deployed, tmp_path: Path) -> None:
    settings = _accepted(deployed, tmp_path)
    for key, file in named_files(settings):
        assert file.is_file(), key


def test_commands_of_every_platform_are_found() -> None:
    found = {f"{command.where.partition(':')[0]} {command.words[0]}" for command in _DEPLOYED}
    parts = {"serve", "job", "history-job"}
    assert {f"{where} {part}" for where in ("compose.yaml", "kubernetes", "helm") for part in parts} <= found
    assert {"Dockerfile serve", "namesrv-stream-webhook.service webhook", "namesrv-stream-up.service up"} <= found
    assert {"deploy.md up", "deploy.md doctor", "deploy.md job", "deploy.md skew"} <= found


@pytest.mark.parametrize(
    "change",
    [
        {"words": ["serve", "--conf", "/run/secrets/settings"], "files": ("/run/secrets/settings",)},
        {"files": ()},
        {"environment": {"NAMESRV_STREAM__SERVER__ID": "a"}},
    ],
    ids=["a file of an unknown kind", "a missing file", "an unknown variable"],
)
def test_a_wrong_command_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    server = next(found for found in _of_compose() if found.words[0] == "serve")
    _accepted(server, tmp_path / "right")
    with pytest.raises(ConfigError):
        _accepted(server._replace(**change), tmp_path / "wrong")
