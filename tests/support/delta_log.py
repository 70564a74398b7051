"""Delta's log written by hand, for tests of commits rather than of rows."""

import json
from pathlib import Path
from typing import Any


def write_commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    """One commit of these actions; the table's folder is made if absent."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
