"""The types of settings, their checks, the texts of their errors, and the sections with paths (data, tables, jars)."""

import contextlib
import ipaddress
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from namesrv_stream.addresses import check_host, http_url, join_addr, split_addr
from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import parse_duration_ms
from namesrv_stream.route.events import DIRECT, JOB

# Also `*.` and a domain, for all names in it.
_HOST_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

# The name of an additional listener, as in the documents of address views, and a port.
_LISTENER: Final = re.compile(r"([A-Za-z0-9_.-]{1,64}):([0-9]{1,5})")


def _no_bool(value: object) -> object:
    if isinstance(value, bool):  # a bool is an int in Python, but not in a configuration
        raise ValueError(f"expected a whole number, not {str(value).lower()}")
    return value


def _split(value: object) -> object:
    """Return the list in a text, which is a TOML array or separated by ; or commas; return other values unchanged."""
    if not isinstance(value, str):
        return value
    with contextlib.suppress(tomllib.TOMLDecodeError):
        read: object = tomllib.loads(f"value = {value}")["value"]
        if isinstance(read, list):
            return read
    return [part.strip() for part in re.split("[;,]", value) if part.strip()]


def _check_addr(addr: str) -> str:
    try:
        return join_addr(*split_addr(addr))
    except ValueError:
        raise ValueError(f"{addr!r} is not host:port") from None


def _check_addrs(addrs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_check_addr, addrs))


_SPARK_MASTER: Final = re.compile(
    r"local(\[\s*(\*|[1-9]\d*)\s*(,\s*\d+\s*)?\])?|local-cluster\[\s*\d+\s*(,\s*\d+\s*){2}\]|yarn|(spark|k8s)://\S+"
)


def _check_spark_master(value: str) -> str:
    if not _SPARK_MASTER.fullmatch(value):
        raise ValueError("must be local[N], spark://…, yarn or k8s://…")
    return value


def _check_server_id(value: str) -> str:
    if value in (DIRECT, JOB):
        raise ValueError(f"{value!r} is the id of other writers of the log: choose another name")
    return value


def _check_advertised(addr: str) -> str:
    addr = addr and _check_addr(addr)
    if addr.startswith(("0.0.0.0:", "[::]:")):
        raise ValueError(f"{addr!r} means every address of this machine: expected one that clients can connect to")
    return addr


def _check_host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is neither a host name nor *.DOMAIN (all names of a domain), without a port")
    return names


def _check_http_url(url: str) -> str:
    try:
        return http_url(url)
    except ValueError:
        raise ValueError(f"{url!r} is not http://host:port") from None


def _check_http_urls(urls: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_check_http_url, urls))


def _check_networks(networks: tuple[str, ...]) -> tuple[str, ...]:
    checked = []
    for network in networks:
        try:
            checked.append(str(ipaddress.ip_network(network)))
        except ValueError as error:
            raise ValueError(f"{network!r} is not a network in CIDR notation: {error}") from None
    return tuple(checked)


def _check_listeners(listeners: tuple[str, ...]) -> tuple[str, ...]:
    names = set()
    for listener in listeners:
        found = _LISTENER.fullmatch(listener)
        if found is None or int(found[2]) > 65_535:
            raise ValueError(f"{listener!r} is not NAME:PORT")
        if found[1] in names:
            raise ValueError(f"the name {found[1]} occurs twice")
        names.add(found[1])
    return listeners


class Section(BaseModel):
    """A table of the configuration: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _parse_duration(cls, value: object, info: ValidationInfo) -> object:
        """Parse the text of a duration; without a unit it is in milliseconds, as the name of its setting says."""
        is_text = isinstance(value, str) and (info.field_name or "").endswith("_ms")
        return parse_duration_ms(str(value), "ms") if is_text else value


class _Advanced:
    """The type of ``ADVANCED``."""


#: Marks a setting that users find below ``[advanced]``; it is not supported and may change in any release.
ADVANCED: Final = _Advanced()
_T = TypeVar("_T")
Advanced = Annotated[_T, ADVANCED]

LowerCase: Final = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
#: Translates the values of RocketMQ's ``tls.enable``.
TlsOrPlain: Final = BeforeValidator(
    lambda value: {"true": "tls", "false": "plain"}.get(value, value) if isinstance(value, str) else value
)
Number = Annotated[int, BeforeValidator(_no_bool)]
Port = Annotated[Number, Field(ge=0, le=65535)]  # 0: any free port
PositiveInt = Annotated[Number, Field(gt=0)]
NonEmptyStr = Annotated[str, Field(min_length=1)]
ListenHost = Annotated[str, AfterValidator(check_host)]  # an IPv6 address loses its brackets
ServerId = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_.-]*$"), AfterValidator(_check_server_id)]
SparkMaster = Annotated[str, AfterValidator(_check_spark_master)]
Names = Annotated[tuple[NonEmptyStr, ...], BeforeValidator(_split)]
Addrs = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_check_addrs)]
AdvertisedAddress = Annotated[str, AfterValidator(_check_advertised)]
HostNames = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_check_host_names)]
# http://host:port; the scheme is optional.
HttpUrls = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_check_http_urls)]
WebhookEvents = Annotated[
    tuple[
        Literal["broker_down", "broker_held", "broker_released", "broker_route", "topic_route", "topic_route_removed"],
        ...,
    ],
    Field(min_length=1),
    BeforeValidator(_split),
]
Networks = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_check_networks)]
# NAME:PORT of additional listeners.
Listeners = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_check_listeners)]
# Usable in the name of an environment variable: printable ASCII without blanks and `=`.
AccessKey = Annotated[str, Field(pattern=r"^[!-<>-~]+$")]
Secret = Annotated[SecretStr, Field(min_length=1)]
# Options of a library, by its own names.
Options = dict[str, bool | int | float | str]

_WHOLE_NUMBER: Final = "expected a whole number"
_NUMBER: Final = "expected a number"
_TRUTH: Final = "expected true or false"
#: pydantic's type of a problem → its text, with the limits that pydantic names.
_TEXTS: Final = {
    "int_parsing": _WHOLE_NUMBER,
    "int_type": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "bool_parsing": _TRUTH,
    "bool_type": _TRUTH,
    "string_type": "expected text",
    "path_type": "expected a path",
    "model_type": "expected a section with keys",
    "literal_error": "expected {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} character(s)",
    "too_short": "must have at least {min_length} value(s)",
}


def problem_text(problem: ErrorDetails) -> str:
    """Return what pydantic expected instead of a value: ``expected a whole number``, ``must be at most 65535``."""
    text = _TEXTS.get(problem["type"])
    if text is None:
        return problem["msg"].removeprefix("Value error, ")
    return text.format(**problem.get("ctx", {}))


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: The name of a bucket and a prefix, without *, which is a pattern for Polars. Names:
#: https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_S3: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/([A-Za-z0-9!_.'()/=-]*))?")


class DataSettings(Section):
    """Where the data is that must survive a restart."""

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
        """The folder of the tables: that of the setting ``tables``, which servers can share, or else ``dir``/tables.

        Raises:
            ConfigError: The tables are in an object store.
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
        """The folder for the embedded Kafka's log and configuration."""
        return self.dir / "kafka"

    @property
    def server_dir(self) -> Path:
        """The folder for a server's files, such as its generated id."""
        return self.dir / "server"

    @property
    def webhook_dir(self) -> Path:
        """The folder for the position up to which the webhook has reported."""
        return self.dir / "webhook"

    @property
    def run_dir(self) -> Path:
        """The folder for the lock, the effective configuration, and the run files with the addresses of ready parts."""
        return self.dir / "run"

    @property
    def logs_dir(self) -> Path:
        """The folder for the logs of the processes that ``up`` starts."""
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
    """Return the base of relative folders of jars.

    It is NAMESRV_STREAM_HOME, else the checkout, else the files that the wheel installed, else the current directory.
    """
    home = os.environ.get("NAMESRV_STREAM_HOME", "")
    if home:
        return Path(home).absolute()
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout
    brought = Path(sys.prefix) / "share" / "namesrv-stream"
    return brought if brought.is_dir() else Path.cwd()
