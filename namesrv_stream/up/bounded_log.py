"""A log file of bounded size: turned over when full, a few old ones kept."""

from pathlib import Path
from typing import Final

_KEPT: Final = 2  # old files: NAME.1 is the newer


class BoundedLog:
    """Appends lines to a file and starts a new one before it outgrows its limit."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Open ``path`` for appending; its folder is made if absent.

        Args:
            path: The current file; old ones are ``path.1`` and ``path.2``.
            max_bytes: Size at which the file is turned over.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._max_bytes = max_bytes
        self._file = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def write(self, line: bytes) -> None:
        """Append one line, which ends with its newline."""
        if self._size and self._size + len(line) > self._max_bytes:
            self._turn_over()
        self._file.write(line)
        self._size += len(line)

    def close(self) -> None:
        """Close the file; nothing can be written after."""
        self._file.close()

    def _turn_over(self) -> None:
        self._file.close()
        for age in range(_KEPT, 0, -1):
            newer = self._path if age == 1 else self._path.with_name(f"{self._path.name}.{age - 1}")
            if newer.exists():
                newer.replace(self._path.with_name(f"{self._path.name}.{age}"))
        self._file = self._path.open("ab", buffering=0)
        self._size = 0
