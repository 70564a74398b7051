"""Run files: small JSON files in ``DATA/run`` by which one process tells the others that it is ready, and where.

A process writes its file once it can serve, whole and by one rename; whoever starts it removes the file before.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path


def write_run_file(path: Path, facts: Mapping[str, str | int]) -> None:
    """Write ``facts`` and the writer's ``pid`` so that a reader sees either nothing or all of it.

    Args:
        path: For example ``DATA/run/serve.json``; its folder is made if absent.
        facts: What the readers need, for example ``{"remoting": "127.0.0.1:9876"}``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps({**facts, "pid": os.getpid()}) + "\n", encoding="utf-8")
    draft.replace(path)


def read_run_file(path: Path) -> dict[str, str | int] | None:
    """The facts in ``path``; None while there is no such file or it is not one of ours."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return facts if isinstance(facts, dict) else None
