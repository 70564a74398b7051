"""Run files: small JSON files in ``DATA/run`` in which a process publishes that it is ready, and at which address.

A process writes its file once it can serve, with one rename; its starter removes the file beforehand.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: Words in the command lines of the product's processes: `python -m namesrv_stream`, the console script, the embedded
#: Kafka, and what `spark-submit` runs.
_COMMANDS: Final = frozenset({b"namesrv_stream", b"namesrv-stream", b"kafka.Kafka", b"route_table.py", b"history.py"})


def write_run_file(path: Path, facts: Mapping[str, str | int]) -> None:
    """Write ``facts`` and the writer's ``pid`` atomically.

    Args:
        path: For example ``DATA/run/serve.json``; its folder is created if absent.
        facts: For the readers, for example ``{"remoting": "127.0.0.1:9876"}``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps({**facts, "pid": os.getpid()}) + "\n", encoding="utf-8")
    draft.replace(path)


def read_run_file(path: Path) -> dict[str, str | int] | None:
    """The facts in ``path``; None while there is no such file or it is not a run file."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return facts if isinstance(facts, dict) else None


def is_writer_alive(facts: Mapping[str, str | int]) -> bool:
    """Whether the process that wrote a run file still exists; checks its command, since process ids are reused."""
    try:
        words = Path(f"/proc/{facts.get('pid')}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return not Path("/proc/self").exists() and _exists(int(facts.get("pid", 0)))
    except OSError:
        return False
    return not _COMMANDS.isdisjoint(word.rpartition(b"/")[2] for word in words)


def _exists(pid: int) -> bool:
    """Whether any process has this id: all that can be known without /proc, as on macOS."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
