"""The sections of the settings with paths: data, tables and jars."""

import os
import re
import sys
from pathlib import Path
from typing import Final

from pydantic import Field

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings.values import Advanced, Options, Section

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: The name of a bucket and a prefix, without *, which is a pattern for Polars. Names:
#: https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_S3: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9!_.'()/=-]*))?")


class DataSettings(Section):
    """Where data is kept that must survive a restart."""

    dir: Path = Path("data")
    tables: str = ""
    extra: Options = Field(default={})

    @property
    def store(self) -> tuple[str, str] | None:
        """Bucket and prefix of the tables; None if they are in a folder.

        Raises:
            ValueError: ``tables`` is the address of another kind of store, or malformed.
        """
        return _bucket_and_prefix(self.tables)

    @property
    def tables_dir(self) -> Path:
        """The folder of the tables; a separate one if several servers share them.

        Raises:
            ConfigError: They are in an object store.
        """
        if self.store is not None:
            reason = f"this needs a folder, not {self.tables}: copy them to one"
            raise ConfigError("settings", "data.tables", reason)
        return Path(self.tables) if self.tables else self.dir / "tables"

    @property
    def lock_dir(self) -> Path:
        """The folder of the job's lock: that of the tables, or the data directory if they are in an object store."""
        return self.dir if self.store is not None else self.tables_dir

    @property
    def kafka_dir(self) -> Path:
        """The embedded Kafka's log and configuration."""
        return self.dir / "kafka"

    @property
    def server_dir(self) -> Path:
        """Files of a server, such as its generated id."""
        return self.dir / "server"

    @property
    def webhook_dir(self) -> Path:
        """The position up to which the webhook has reported."""
        return self.dir / "webhook"

    @property
    def run_dir(self) -> Path:
        """Run files: the lock, the effective configuration, the addresses of ready parts."""
        return self.dir / "run"

    @property
    def logs_dir(self) -> Path:
        """Logs of the processes that ``up`` starts."""
        return self.dir / "logs"


def _bucket_and_prefix(address: str) -> tuple[str, str] | None:
    scheme = _SCHEME.match(address)
    if scheme is None:
        return None
    found = _S3.fullmatch(address)
    if found is None or "//" in address.removeprefix("s3://") or ".." in address:
        raise ValueError(f"{scheme[0]}… is neither a folder nor s3://BUCKET/PREFIX")
    return found[1], (found[2] or "").strip("/")


class JarsSettings(Section):
    """Folders of jars; relative ones are below :func:`project_home`."""

    spark_dir: Advanced[Path] = Path(".jars/spark")
    kafka_dir: Advanced[Path] = Path(".jars/kafka")


def project_home() -> Path:
    """The base of relative folders of jars: NAMESRV_STREAM_HOME, the checkout, the wheel's files, or this directory."""
    home = os.environ.get("NAMESRV_STREAM_HOME", "")
    if home:
        return Path(home).absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout
    brought = Path(sys.prefix) / "share" / "namesrv-stream"
    return brought if brought.is_dir() else Path.cwd()
