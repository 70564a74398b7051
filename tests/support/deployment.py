"""The files of ``deploy/``, read as Docker, Compose and Kustomize read them."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import orjson
import yaml

from namesrv_stream.settings import ENVIRONMENT_PREFIX, Settings, load_settings
from namesrv_stream.settings.secrets import is_secret

REPOSITORY = Path(__file__).resolve().parents[2]
DEPLOY = REPOSITORY / "deploy"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm" / "namesrv-stream"
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


_ACTION: Final = re.compile(r"\n?[ ]*\{\{-(.*?)\}\}|\{\{(.*?)\}\}", re.DOTALL)


def helm_objects(namespace: str = "namesrv-stream", **values: Any) -> list[dict[str, Any]]:
    """Everything that the chart makes, rendered with the part of Helm's language that it uses.

    Args:
        namespace: Namespace of the release.
        values: Sections of ``values.yaml`` that are merged into it.
    """
    merged = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for section, content in values.items():
        merged[section] = merged[section] | content if isinstance(content, dict) else content
    scope = {".Values": merged, ".Release": {"Namespace": namespace}}
    texts = [render(path.read_text(encoding="utf-8"), scope) for path in sorted((CHART / "templates").glob("*.yaml"))]
    return [found for text in texts for found in yaml.safe_load_all(text) if found is not None]


def render(template: str, scope: Mapping[str, Any]) -> str:
    """Render a template with ``range``, ``if`` and ``end``, ``quote``, ``toYaml`` and ``nindent``.

    Raises:
        KeyError: It uses a value that does not exist.
        ValueError: It uses something else.
    """
    pieces: list[str] = []
    at = 0
    while (action := _ACTION.search(template, at)) is not None:
        pieces.append(template[at : action.start()])
        words = (action[1] or action[2]).split()
        at = action.end()
        if words[0] not in ("if", "range"):
            pieces.append(_value(words, scope))
            continue
        depth, end = 1, action
        while depth:
            end = _ACTION.search(template, end.end()) or _unknown("a block without end")
            depth += {"if": 1, "range": 1, "end": -1}.get((end[1] or end[2]).split()[0], 0)
        body = template[at : end.start()]
        pieces += [render(body, dict(scope) | more) for more in _repetitions(words, scope)]
        at = end.end()
    return "".join([*pieces, template[at:]])


def _repetitions(words: list[str], scope: Mapping[str, Any]) -> list[dict[str, Any]]:
    match words:
        case ["if", name]:
            return [{}] if _lookup(name, scope) else []
        case ["range", name]:
            return [{".": item} for item in _lookup(name, scope)]
        case ["range", variable, ":=", "until", "(int", name]:
            return [{variable: number} for number in range(_lookup(name.removesuffix(")"), scope))]
        case ["range", key, value, ":=", name]:
            return [{key.removesuffix(","): k, value: v} for k, v in sorted(_lookup(name, scope).items())]
        case _:
            _unknown(" ".join(words))


def _value(words: list[str], scope: Mapping[str, Any]) -> str:
    match words:
        case [name]:
            return str(_lookup(name, scope))
        case [name, "|", "quote"]:
            return orjson.dumps(str(_lookup(name, scope))).decode()
        case ["toYaml", name, "|", "nindent", width]:
            text = yaml.safe_dump(_lookup(name, scope)).rstrip().replace("\n", "\n" + " " * int(width))
            return "\n" + " " * int(width) + text
        case ["include", *_, "sha256sum"]:
            return "digest"
        case _:
            _unknown(" ".join(words))


def _lookup(name: str, scope: Mapping[str, Any]) -> Any:
    if name in scope:
        return scope[name]
    root, found = next((root, value) for root, value in scope.items() if name.startswith(f"{root}."))
    for part in name.removeprefix(f"{root}.").split("."):
        found = found[part]
    return found


def _unknown(text: str) -> NoReturn:
    raise ValueError(f"the chart uses {text}, which this renderer does not know")
