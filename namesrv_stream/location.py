"""Where tables are: a folder, or a place in an S3-compatible store; `snapshot.table_files` reads and writes both."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: A bucket's name, and a prefix; no *, which Polars would take for a pattern. Names:
#: https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_S3: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9!_.'()/=-]*))?")


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A place in an S3-compatible store, with as much of ``pathlib.Path`` as tables need.

    Attributes:
        bucket: Its bucket.
        key: What all keys below it begin with; no slash at either end.
        options: How to reach the store, (name, value) in capitals as ``AWS_ENDPOINT_URL``; some are secrets.
    """

    bucket: str
    key: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(self.bucket, f"{self.key}/{name}".lstrip("/"), self.options)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}".rstrip("/")

    @property
    def name(self) -> str:
        """The last part."""
        return self.key.rpartition("/")[2]

    @property
    def is_plain_http(self) -> bool:
        """Whether the store is reached without TLS."""
        return any("ENDPOINT" in name and value.startswith("http://") for name, value in self.options)


#: Of a table, of a folder of tables, or of a file in one.
Location: TypeAlias = Path | ObjectPath


def object_path(address: str, options: Mapping[str, object]) -> ObjectPath | None:
    """The place that an address names; None where it is that of a folder.

    Args:
        address: ``s3://BUCKET/PREFIX``, or a folder.
        options: As they are configured: names in either case, values of any simple type.

    Raises:
        ValueError: It is of a store that is not known, or malformed.
    """
    scheme = _SCHEME.match(address)
    if scheme is None:
        return None
    found = _S3.fullmatch(address)
    if found is None or "//" in address.removeprefix("s3://") or ".." in address:
        raise ValueError(f"{scheme[0]}… is neither a folder nor s3://BUCKET/PREFIX")
    known = {name.upper(): _text(value) for name, value in options.items()}
    return ObjectPath(found[1], (found[2] or "").strip("/"), tuple(sorted(known.items())))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
