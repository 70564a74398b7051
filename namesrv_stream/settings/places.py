"""Where things are: what must survive, the tables, the jars."""

import os
import sys
from pathlib import Path

from pydantic import Field

from namesrv_stream.errors import ConfigError
from namesrv_stream.location import Location, ObjectPath, object_path
from namesrv_stream.settings.section import Section
from namesrv_stream.settings.values import Options


class DataSettings(Section):
    """Where everything that must survive is kept."""

    dir: Path = Path("data")
    tables: str = ""
    extra: Options = Field(default={})

    @property
    def tables_location(self) -> Location:
        """The Delta tables: of their own where several servers share them."""
        if not self.tables:
            return self.dir / "tables"
        return object_path(self.tables, self.extra) or Path(self.tables)

    @property
    def tables_dir(self) -> Path:
        """The same for whoever works in a folder only.

        Raises:
            ConfigError: They are in an object store.
        """
        return self.tables_folder("this", "copy them to one")

    def tables_folder(self, who: str, remedy: str) -> Path:
        """The same, with words for the error: who needs a folder, and what to do instead."""
        tables = self.tables_location
        if isinstance(tables, ObjectPath):
            raise ConfigError("settings", "data.tables", f"{who} needs a folder, not {tables}: {remedy}")
        return tables

    @property
    def lock_dir(self) -> Path:
        """Where the job's lock is: beside the tables, or where they cannot have one beside the checkpoint."""
        tables = self.tables_location
        return tables if isinstance(tables, Path) else self.dir

    @property
    def checkpoint_dir(self) -> Path:
        """The Spark job's checkpoint."""
        return self.dir / "checkpoint"

    @property
    def kafka_dir(self) -> Path:
        """The embedded Kafka's log and configuration."""
        return self.dir / "kafka"

    @property
    def server_dir(self) -> Path:
        """What a server keeps for itself, such as its generated id."""
        return self.dir / "server"

    @property
    def webhook_dir(self) -> Path:
        """How far the webhook has reported."""
        return self.dir / "webhook"

    @property
    def run_dir(self) -> Path:
        """Run files: the lock, the effective configuration, who is ready where."""
        return self.dir / "run"

    @property
    def logs_dir(self) -> Path:
        """Logs of the processes that ``up`` starts."""
        return self.dir / "logs"


class JarsSettings(Section):
    """Folders of jars; relative ones are below :func:`project_home`."""

    spark_dir: Path = Path(".jars/spark")
    kafka_dir: Path = Path(".jars/kafka")


def project_home() -> Path:
    """What folders of jars are relative to: NAMESRV_STREAM_HOME, the checkout, or what a wheel brought; else here."""
    home = os.environ.get("NAMESRV_STREAM_HOME", "")
    if home:
        return Path(home).absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout
    brought = Path(sys.prefix) / "share" / "namesrv-stream"
    return brought if brought.is_dir() else Path.cwd()
