"""A server's identity in the log: an id that survives restarts, and an epoch that grows with every start."""

import fcntl
import json
import logging
import os
import uuid
from pathlib import Path
from typing import NamedTuple

from namesrv_stream.errors import ConfigError

logger = logging.getLogger(__name__)


class Identity(NamedTuple):
    """A stable, unique ``server_id``; a ``server_epoch`` that grows with every start (usually epoch milliseconds)."""

    server_id: str
    server_epoch: int


class IdentityFile:
    """The file that stores the identity. Its directory stays locked while the server runs."""

    def __init__(self, server_dir: Path) -> None:
        """Lock ``server_dir``.

        Raises:
            ConfigError: The directory cannot be written, or another server uses it.
        """
        self._path = server_dir / "identity.json"
        try:
            server_dir.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(server_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError(str(server_dir), "data.dir", f"cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(str(server_dir), "data.dir", "another server runs on this directory") from error

    def begin_epoch(self, configured_id: str, now_ms: int) -> Identity:
        """Return the identity of this start. It is stored before use, so that no two starts share an epoch.

        Raises:
            ConfigError: The identity cannot be stored.
        """
        stored = self._read()
        server_id = configured_id or str(stored.get("server_id", "")) or f"ns-{uuid.uuid4().hex[:12]}"
        last_epoch = stored.get("server_epoch", 0)
        identity = Identity(server_id, max(now_ms, (last_epoch if isinstance(last_epoch, int) else 0) + 1))
        try:
            self._write(identity)
        except OSError as error:
            raise ConfigError(str(self._path), "data.dir", f"cannot be written: {error.strerror}") from error
        return identity

    def _write(self, identity: Identity) -> None:
        # Synced: after a loss of power, an empty file would give the server another id.
        draft = self._path.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(identity._asdict()) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        os.close(self._lock)

    def _read(self) -> dict[str, object]:
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:  # not JSON, or not even text
            logger.warning("the server's identity cannot be read, it gets a new one path=%s", self._path)
            return {}
        return stored if isinstance(stored, dict) else {}
