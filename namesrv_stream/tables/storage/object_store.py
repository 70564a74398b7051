"""Tables in an S3-compatible object store.

The clients of delta-rs, Polars and this module get the same options. Each fails after half a second if the store
refuses the connection, and after 30 s if it does not respond.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from namesrv_stream.errors import ConfigError, StoreUnreachable
from namesrv_stream.tables.storage.interface import Storage

if TYPE_CHECKING:
    from obstore.store import S3Store

_CONNECT_S: Final = 5
_REQUEST_S: Final = 30
_RETRY_S: Final = 10
_RETRIES: Final = 3
#: The same limits as options of delta-rs.
_LIMITS: Final = {
    "connect_timeout": f"{_CONNECT_S}s",
    "timeout": f"{_REQUEST_S}s",
    "max_retries": str(_RETRIES),
    "retry_timeout": f"{_RETRY_S}s",
}
#: A commit must fail if its version exists already. The fencing of two jobs depends on it (ADR 0040).
_CONDITIONAL_PUT: Final = {"AWS_CONDITIONAL_PUT": "etag"}
_PLAIN_HTTP: Final = {"AWS_ALLOW_HTTP": "true"}
#: Options that may be given as NAME_FILE, the name of a file that contains the value.
_SECRETS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_FILE: Final = "_FILE"
_PARALLEL_COPIES: Final = 16
#: The client's errors contain escape sequences for terminals.
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
#: The duration and number of attempts are removed, so that the same failure always has the same text.
_ATTEMPTS: Final = re.compile(r" in [\d.]+[nµm]?s\b.{,200}? - ")
#: The user in a URL.
_USER: Final = re.compile(r"://[^/@\s]*@")
#: The store's response, which may repeat a key or a token; only its code is shown.
_ANSWER: Final = re.compile(r"(?<![\s:↳])[\s:↳]*+<(?:\?xml|Error>)(?:.*?<Code>(\w+)</Code>)?.*")


@dataclass(frozen=True, slots=True)
class ObjectStore(Storage):
    """Storage below a prefix in a bucket.

    Attributes:
        bucket: Name of the bucket.
        key: The prefix, without a slash at either end.
        options: Options of the client: (name, value), with names in capitals such as ``AWS_ENDPOINT_URL``. Some are
            secrets.
    """

    bucket: str
    key: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    check_interval_s = 4.0

    def __truediv__(self, name: str) -> Self:
        return type(self)(self.bucket, self._key(name), self.options)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}".rstrip("/")

    @property
    def is_plain_http(self) -> bool:
        """Whether the store is reached without TLS."""
        return any("ENDPOINT" in name and value.startswith("http://") for name, value in self.options)

    @property
    def delta_options(self) -> dict[str, str]:
        return self._client_options() | _LIMITS

    @property
    def polars_options(self) -> dict[str, str | int]:
        return {**self._client_options(), "max_retries": _RETRIES}

    def make(self) -> None:
        """Do nothing: a prefix exists with its first object."""

    def sizes(self) -> Mapping[str, int]:
        with self.reaching():
            found = self._store().list_with_delimiter(f"{self.key}/" if self.key else None)["objects"]
            return {item["path"].rpartition("/")[2]: item["size"] for item in found}

    def exists(self, name: str) -> bool:
        try:
            with self.reaching():
                self._store().head(self._key(name))
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> bytes:
        with self.reaching():
            return bytes(self._store().get(self._key(name)).bytes())

    def create(self, name: str, content: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError

        is_there = False
        with self.reaching():
            try:
                self._store().put(self._key(name), content, mode="create")
            except AlreadyExistsError:
                is_there = True
        if is_there:
            raise FileExistsError(f"{self}/{name}")

    def write(self, name: str, content: bytes) -> None:
        with self.reaching():
            self._store().put(self._key(name), content)

    def sync(self, names: Iterable[str]) -> None:
        """Do nothing: an acknowledged object is durable."""

    def remove(self, name: str) -> None:
        try:
            with self.reaching():
                self._store().delete(self._key(name))
        except FileNotFoundError:
            return

    def move(self, source: str, target: str) -> None:
        old, new = self._key(source), self._key(target)
        if self.exists(source):
            self._move([(old, new)])
            return
        below = [key for keys in self._keys(source) for key in keys]
        if not below and not self.has(target) and not self.exists(target):
            raise FileNotFoundError(f"{self}/{source}")
        self._move([(key, new + key[len(old) :]) for key in below])

    def remove_all(self, name: str) -> None:
        with self.reaching():
            for keys in self._keys(name):
                self._store().delete(keys)

    def has(self, name: str) -> bool:
        with self.reaching():
            return any(self._keys(name))

    @contextmanager
    def reaching(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, BaseError) as error:
            # The client's own traceback would contain secrets.
            raise StoreUnreachable(str(self), one_line(error)) from None

    def _key(self, name: str) -> str:
        return f"{self.key}/{name}".lstrip("/")

    def _keys(self, name: str) -> Iterator[list[str]]:
        for page in self._store().list(f"{self._key(name)}/"):
            yield [item["path"] for item in page]

    def _move(self, pairs: list[tuple[str, str]]) -> None:
        """Copy all objects, then remove the sources. After a crash before all are copied, the source is complete."""
        with self.reaching(), ThreadPoolExecutor(_PARALLEL_COPIES) as pool:
            list(pool.map(lambda pair: self._store().copy(*pair), pairs))
            for begin in range(0, len(pairs), 1000):
                self._store().delete([old for old, _ in pairs[begin : begin + 1000]])

    def _client_options(self) -> dict[str, str]:
        self._store()  # it rejects unknown names of options, which the other clients ignore
        return self._options() | (_PLAIN_HTTP if self.is_plain_http else {})

    def _options(self) -> dict[str, str]:
        """Return the options. Secrets given as ``NAME_FILE`` are read from the files at every call."""
        known = {}
        for name, value in self.options:
            plain = name.removesuffix(_FILE)
            is_in_file = plain != name and plain in _SECRETS
            known[plain if is_in_file else name] = _read_secret(name, value) if is_in_file else value
        return known | _CONDITIONAL_PUT

    def _store(self) -> "S3Store":
        return _store_of(self.bucket, tuple(self._options().items()), self.is_plain_http)


def one_line(error: BaseException) -> str:
    """Return the text of an error for people, without secrets. The same failure always has the same text."""
    text = " ".join(_COLOURS.sub("", str(error)).partition("Debug source:")[0].split())
    text = _USER.sub("://", _ATTEMPTS.sub(" - ", text.partition(" 0: <unknown>")[0]))
    text = _ANSWER.sub(lambda answer: f": {answer[1]}" if answer[1] else "", text)
    return text[:400] or type(error).__name__


def _read_secret(name: str, path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(path, f"data.extra.{name}", str(reason)) from None


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
