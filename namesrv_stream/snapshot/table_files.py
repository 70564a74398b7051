"""Opens tables and reads and writes their files, wherever they are; no other module needs to know where that is.

In a folder these are the plain calls. In an object store all clients (delta-rs's, Polars' and ours) are of the same
kind and get the same options; each gives up after half a second where the store refuses, and after 30 s where it is
silent.
"""

import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from namesrv_stream.errors import ConfigError, StoreUnreachable
from namesrv_stream.location import Location, ObjectPath

if TYPE_CHECKING:
    from obstore.store import S3Store

_CONNECT_S: Final = 5
_REQUEST_S: Final = 30
_RETRY_S: Final = 10
_RETRIES: Final = 3
#: Of a client that is told no more than where to connect.
_PATIENCE: Final = {
    "connect_timeout": f"{_CONNECT_S}s",
    "timeout": f"{_REQUEST_S}s",
    "max_retries": str(_RETRIES),
    "retry_timeout": f"{_RETRY_S}s",
}
#: A commit must fail where its version is taken: the fence between two jobs stands on it (ADR 0040).
_CONDITIONAL_PUT: Final = {"AWS_CONDITIONAL_PUT": "etag"}
_PLAIN_HTTP: Final = {"AWS_ALLOW_HTTP": "true"}
#: With `_FILE` behind it, the file that holds it.
_OF_FILES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_FILE: Final = "_FILE"
#: The errors' own have escapes for a terminal.
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
#: How long and how often an attempt was made: another number each time, where the same failure is to be told once.
_ATTEMPTS: Final = re.compile(r" in [\d.]+[nµm]?s\b.*? - ")
#: Of an address.
_USER: Final = re.compile(r"://[^/@\s]*@")
#: What the store answered, which may repeat a key or a token; its code alone is told.
_ANSWER: Final = re.compile(r"[\s:↳]*<(?:\?xml|Error>)(?:.*?<Code>(\w+)</Code>)?.*")


def storage_options(path: Location) -> dict[str, str] | None:
    """What delta-rs must be told to reach it; None for a folder."""
    if isinstance(path, Path):
        return None
    return _client_options(path) | _PATIENCE


def scan_options(path: Location) -> dict[str, str | int] | None:
    """The same for Polars."""
    return None if isinstance(path, Path) else {**_client_options(path), "max_retries": _RETRIES}


def open_delta(path: Location, version: int | None = None) -> DeltaTable:
    """A table at its newest version, or at the one given.

    Raises:
        deltalake.exceptions.TableNotFoundError: There is none.
        StoreUnreachable: Its object store does not answer.
    """
    with reaching(path):
        if isinstance(path, Path):
            return DeltaTable(path, version=version)
        return DeltaTable(str(path), version=version, storage_options=storage_options(path))


def transaction_versions(path: Location, table: DeltaTable, app_ids: Mapping[int, str]) -> dict[int, int]:
    """Partition → the newest version that an application has told of there, 0 for none.

    Unlike all else of an open table this is read from its log, each time.

    Args:
        path: Of the table.
        table: As it was opened.
        app_ids: Partition → name of the application.

    Raises:
        StoreUnreachable: Its object store does not answer.
    """
    with reaching(path):
        return {partition: table.transaction_version(app_id) or 0 for partition, app_id in app_ids.items()}


def names_in(folder: Location) -> list[str]:
    """The names of its files (in a store, of those further down too), in no order; none where there is none."""
    if isinstance(folder, Path):
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []
    with reaching(folder):
        return [item["path"].rpartition("/")[2] for page in _store(folder).list(f"{folder.key}/") for item in page]


def read_bytes(path: Location) -> bytes:
    """A whole file.

    Raises:
        FileNotFoundError: There is none.
        StoreUnreachable: The object store does not answer.
    """
    if isinstance(path, Path):
        return path.read_bytes()
    with reaching(path):
        return bytes(_store(path).get(path.key).bytes())


def exists(path: Location) -> bool:
    """Whether there is such a file."""
    if isinstance(path, Path):
        return path.exists()
    try:
        with reaching(path):
            _store(path).head(path.key)
    except FileNotFoundError:
        return False
    return True


def read_parquet(path: Location, dictionaries: Sequence[str] = ()) -> pa.Table:
    """All rows of a file.

    Args:
        path: Of the file.
        dictionaries: Columns to be read as dictionaries.
    """
    source = path if isinstance(path, Path) else pa.BufferReader(read_bytes(path))
    return pq.read_table(source, partitioning=None, read_dictionary=list(dictionaries))


def write_parquet(path: Location, rows: pa.Table) -> int:
    """Write a file as a whole; returns its size in bytes.

    Raises:
        OSError: It could not be written; nothing of it is left in a folder.
    """
    if isinstance(path, Path):
        try:
            pq.write_table(rows, path, compression="zstd", store_schema=False)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return path.stat().st_size
    content = BytesIO()
    pq.write_table(rows, content, compression="zstd", store_schema=False)
    with reaching(path):
        _store(path).put(path.key, content.getbuffer())
    return content.tell()


def create_file(path: Location, content: bytes) -> None:
    """Write a file as a whole where there is none of that name; of those who try, one does.

    Raises:
        FileExistsError: There is one.
        OSError: It could not be written, or its folder is gone; nothing of it is left there.
        StoreUnreachable: The object store does not answer; it may have written it.
    """
    if isinstance(path, Path):
        staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            staged.write_bytes(content)
            os.link(staged, path)
        finally:
            staged.unlink(missing_ok=True)
        return
    from obstore.exceptions import AlreadyExistsError

    is_there = False
    with reaching(path):
        try:
            _store(path).put(path.key, content, mode="create")
        except AlreadyExistsError:
            is_there = True
    if is_there:
        raise FileExistsError(str(path))


def refuses_second_write(path: ObjectPath) -> bool:
    """Whether the store refuses to write a file that is there if it must not be: the fence of ADR 0040 stands on it.

    Args:
        path: Of a file that is written for this, and removed.

    Raises:
        StoreUnreachable: The store does not answer, or does not let us write.
    """
    create_file(path, b"")
    try:
        create_file(path, b"")
    except FileExistsError:
        return True
    finally:
        remove(path)
    return False


def remove(path: Location) -> None:
    """Remove a file."""
    if isinstance(path, Path):
        path.unlink()
        return
    with reaching(path):
        _store(path).delete(path.key)


@contextmanager
def reaching(path: Location) -> Iterator[None]:
    """An object store's failures, as an error that names what was to be reached; a folder's as they are.

    Raises:
        StoreUnreachable: The store does not answer.
    """
    if isinstance(path, Path):
        yield
        return
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, BaseError) as error:
        raise StoreUnreachable(str(path), one_line(error)) from None  # its own traceback would show all that it says


def one_line(error: BaseException) -> str:
    """What an error says, for people: the same text whenever it is the same failure, and no secret."""
    text = " ".join(_COLOURS.sub("", str(error)).partition("Debug source:")[0].split())
    text = _USER.sub("://", _ATTEMPTS.sub(" - ", text))
    text = _ANSWER.sub(lambda answer: f": {answer[1]}" if answer[1] else "", text)
    return text[:400] or type(error).__name__


def _client_options(path: ObjectPath) -> dict[str, str]:
    _store(path)  # refuses a name that it does not know; the others pass it over
    return _options(path) | (_PLAIN_HTTP if path.is_plain_http else {})


def _options(path: ObjectPath) -> dict[str, str]:
    return _known(path) | _CONDITIONAL_PUT


def _known(path: ObjectPath) -> dict[str, str]:
    """The options, with what the files hold that some of them name: read each time, so that they may be changed."""
    known = {}
    for name, value in path.options:
        plain = name.removesuffix(_FILE)
        is_of_file = plain != name and plain in _OF_FILES
        known[plain if is_of_file else name] = _read(name, value) if is_of_file else value
    return known


def _read(name: str, path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise ConfigError(path, f"data.extra.{name}", str(reason)) from None


def _store(path: ObjectPath) -> "S3Store":
    return _store_of(path.bucket, tuple(_options(path).items()), path.is_plain_http)


@lru_cache
def _store_of(bucket: str, options: tuple[tuple[str, str], ...], is_plain_http: bool) -> "S3Store":
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    try:
        return S3Store(
            bucket,
            config={name.lower(): value for name, value in options},  # type: ignore[arg-type]
            client_options={
                **({"allow_http": True} if is_plain_http else {}),
                "connect_timeout": timedelta(seconds=_CONNECT_S),
                "timeout": timedelta(seconds=_REQUEST_S),
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_S)},
        )
    except BaseError as error:
        raise ConfigError("settings", "data.extra", one_line(error)) from None
