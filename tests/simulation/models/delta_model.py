"""A model of delta-rs: it opens, creates, checkpoints and cleans up tables on a simulated disk.

The product writes its commits and data files itself, and reads them itself while it follows a table. It uses delta-rs
to open a table, to create one, for checkpoints and for VACUUM. Like delta-rs, the model syncs nothing.
"""

import base64
from types import SimpleNamespace
from typing import Any, Final, Self

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError, TableNotFoundError

from namesrv_stream.tables.delta.commit import LAST_CHECKPOINT, LOG, checkpoint_name, commit_name
from namesrv_stream.tables.delta.data_file import STATISTICS
from tests.simulation.runtime.disk import SimDisk

_DAY_MS: Final = 86_400_000
_KEPT: Final = 200
_checkpoints: dict[bytes, bytes] = {}  # content → actions


def _read_checkpoint(content: bytes) -> bytes:
    """Return the actions of a checkpoint. One that was read once is not decoded again."""
    if content not in _checkpoints:
        actions = "\n".join(pq.read_table(pa.BufferReader(content))["action"].to_pylist()).encode()
        if len(_checkpoints) >= _KEPT:
            _checkpoints.clear()
        _checkpoints[content] = actions
    return _checkpoints[content]


class DeltaModel:
    """The class ``DeltaTable`` for tables on one disk."""

    def __init__(self, disk: SimDisk, new_id: Any) -> None:
        self._disk, self._new_id = disk, new_id

    def __call__(self, path: str, version: int | None = None, storage_options: object = None) -> "Table":
        return Table(self._disk, path, version)

    def create(self, path: str, schema: pa.Schema, configuration: dict[str, str], **_: object) -> None:
        self._disk.make_folder(f"{path}/{LOG}")
        encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
        metadata = {"id": self._new_id(), "configuration": configuration, "schema": encoded}
        self._disk.write(f"{path}/{commit_name(0)}", _lines({"commitInfo": {}}, {"metaData": metadata}))


class Table:
    """One version of a table."""

    def __init__(self, disk: SimDisk, path: str, version: int | None) -> None:
        self._disk, self._path = disk, path
        self._files: dict[str, dict[str, Any]] = {}
        self._transactions: dict[str, int] = {}
        self._metadata: dict[str, Any] = {}
        log = disk.folder(f"{path}/{LOG}")
        if not log:
            raise TableNotFoundError(f"no table in {path}")
        begin = self._load_checkpoint(version)
        self._version = begin
        while version is None or self._version < version:
            content = log.get(commit_name(self._version + 1).rpartition("/")[2])
            if content is None:
                break
            self._apply(content.content)
            self._version += 1
        if not self._metadata:
            raise (TableNotFoundError if not self._commits() else DeltaError)("No table metadata found in the log")
        if version is not None and self._version != version:
            raise DeltaError(f"version {version} does not exist")

    def _load_checkpoint(self, version: int | None) -> int:
        hint = self._disk.file(f"{self._path}/{LAST_CHECKPOINT}")
        number = None
        if hint is not None:
            try:
                number = int(orjson.loads(hint.content)["version"])
            except (ValueError, LookupError, TypeError):
                raise DeltaError("Invalid Checkpoint: the hint is damaged") from None
        if number is None or (version is not None and number > version):
            number = max((v for v in self._checkpoints() if version is None or v <= version), default=-1)
            if number < 0:
                return -1
        found = self._disk.file(f"{self._path}/{checkpoint_name(number)}")
        try:
            if found is None:
                raise OSError("it is missing")
            self._apply(_read_checkpoint(found.content))
        except (OSError, pa.ArrowException) as error:
            raise DeltaError(f"Invalid Checkpoint: {error}") from None
        return number

    def _checkpoints(self) -> list[int]:
        names = self._disk.folder(f"{self._path}/{LOG}") or {}
        return sorted(int(name[:20]) for name in names if name.endswith(".checkpoint.parquet"))

    def _commits(self) -> list[int]:
        names = self._disk.folder(f"{self._path}/{LOG}") or {}
        return sorted(int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json"))

    def _apply(self, content: bytes) -> None:
        try:
            actions = [orjson.loads(line) for line in content.splitlines()]
        except orjson.JSONDecodeError as error:
            raise DeltaError(f"a commit is damaged: {error}") from None
        for action in actions:
            if "add" in action:
                self._files[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                self._files.pop(action["remove"]["path"], None)
            elif "txn" in action:
                self._transactions[action["txn"]["appId"]] = action["txn"]["version"]
            elif "metaData" in action:
                self._metadata = action["metaData"]

    # ---- what the product reads ----

    def version(self) -> int:
        return self._version

    def protocol(self) -> Any:
        return SimpleNamespace(min_reader_version=1, min_writer_version=2, reader_features=None, writer_features=None)

    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._metadata["schema"])))

    def metadata(self) -> Any:
        configuration = self._metadata["configuration"]
        return SimpleNamespace(id=self._metadata["id"], partition_columns=[], configuration=configuration)

    def transaction_version(self, app_id: str) -> int | None:
        return self._transactions.get(app_id)

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        rows = [self._row(add) for add in self._files.values()]
        names = ["path", "size_bytes", "modification_time", "num_records"]
        names += [f"{side}.{name}" for side in ("min", "max") for name in STATISTICS]
        types = [pa.string()] + [pa.int64()] * (len(names) - 1)
        return pa.Table.from_pylist(rows, pa.schema(zip(names, types, strict=True)))

    @staticmethod
    def _row(add: dict[str, Any]) -> dict[str, Any]:
        stats = orjson.loads(add["stats"])
        row = {"path": add["path"], "size_bytes": add["size"], "modification_time": add["modificationTime"]}
        row["num_records"] = stats["numRecords"]
        for side, key in (("min", "minValues"), ("max", "maxValues")):
            row |= {f"{side}.{name}": stats[key][name] for name in STATISTICS}
        return row

    # ---- what the product writes through delta-rs ----

    def create_checkpoint(self) -> None:
        actions = [{"metaData": self._metadata}, *({"add": add} for add in self._files.values())]
        actions += [{"txn": {"appId": name, "version": v}} for name, v in self._transactions.items()]
        content = pa.BufferOutputStream()
        pq.write_table(pa.table({"action": [orjson.dumps(action).decode() for action in actions]}), content)
        self._disk.write(f"{self._path}/{checkpoint_name(self._version)}", content.getvalue().to_pybytes())
        hint = orjson.dumps({"version": self._version, "size": len(actions)})
        self._disk.write(f"{self._path}/{LAST_CHECKPOINT}", hint)

    def vacuum(self, retention_hours: int, dry_run: bool, full: bool) -> list[str]:
        now_ms = self._disk._now_ms()
        old_ms = now_ms - retention_hours * 3_600_000
        found = self._disk.folder(self._path) or {}
        gone = [n for n, inode in found.items() if n not in self._files and inode.modified_ms < old_ms]
        for name in gone:
            self._disk.remove(f"{self._path}/{name}")
        for operation in ("VACUUM START", "VACUUM END"):
            info = {"commitInfo": {"operation": operation, "timestamp": now_ms}}
            self._disk.write(f"{self._path}/{commit_name(self._version + 1)}", _lines(info))
            self._version += 1
        return gone

    def cleanup_metadata(self) -> None:
        """Remove the commits and checkpoints that are older than a day and below the newest checkpoint."""
        newest = max(self._checkpoints(), default=-1)
        log = self._disk.folder(f"{self._path}/{LOG}") or {}
        old_ms = self._disk._now_ms() - _DAY_MS
        for name, inode in list(log.items()):
            if name[:20].isdecimal() and int(name[:20]) < newest and inode.modified_ms < old_ms:
                self._disk.remove(f"{self._path}/{LOG}/{name}")


def _lines(*actions: dict[str, Any]) -> bytes:
    return b"".join(orjson.dumps(action, option=orjson.OPT_APPEND_NEWLINE) for action in actions)


__all__ = ["DeltaModel", "Self", "Table"]
