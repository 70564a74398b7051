"""The files of ``deploy/``, read as Docker, Compose and Kustomize read them."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import typer
import yaml

from namesrv_stream.cli import app
from namesrv_stream.settings import ENVIRONMENT_PREFIX, Settings, load_settings
from namesrv_stream.settings.secrets import is_secret

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"
DOCKERFILE = DEPLOY / "image" / "Dockerfile"

_CONTINUED: Final = re.compile(r"\\\n\s*")


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) of the Dockerfile, in order."""
    text = "".join(
        line for line in DOCKERFILE.read_text(encoding="utf-8").splitlines(keepends=True) if not line.startswith("#")
    )
    lines = _CONTINUED.sub("", text).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line)]


def image_environment() -> dict[str, str]:
    """Return the environment variables that the image sets for every part."""
    words = [word for name, rest in instructions() if name == "ENV" for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


def settings_with(environment: Mapping[str, str]) -> Settings:
    """The settings of a container, without its secret ones.

    Raises:
        ConfigError: A variable names no setting of namesrv-stream, or its value is invalid.
    """
    return load_settings(environ=image_environment() | dict(environment)).settings


def plain_secrets(environment: Mapping[str, str]) -> list[str]:
    """Return variables that seem to contain a secret instead of the name of a file with one."""
    files = ("_FILE", "__FILE")
    return [
        name
        for name, value in environment.items()
        if is_secret(name.removeprefix(ENVIRONMENT_PREFIX), value) and not name.endswith(files)
    ]


def has_command(words: list[str]) -> bool:
    """Whether ``namesrv-stream`` accepts this command line, judged by the names of its flags."""
    group = typer.main.get_command(app)
    command = getattr(group, "commands", {}).get(words[0])
    if command is None:
        return False
    known = {option for parameter in command.params for option in parameter.opts}
    return all(word in known for word in words if word.startswith("-"))


def compose() -> dict[str, Any]:
    """The Compose file, its anchors and merges resolved."""
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    return found


def kustomization() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8"))
    return found


def kubernetes_objects() -> list[dict[str, Any]]:
    """Everything that the base lists, before Kustomize changes names, labels and images."""
    files = kustomization()["resources"]
    return [o for file in files for o in yaml.safe_load_all((KUBERNETES / file).read_text(encoding="utf-8"))]


def kubernetes_settings() -> dict[str, str]:
    """Variables that every pod has from the ConfigMap."""
    lines = (KUBERNETES / "settings.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
