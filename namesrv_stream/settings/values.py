"""The types of settings, their checks, and the texts of their errors."""

import contextlib
import ipaddress
import re
import tomllib
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic_core import ErrorDetails

# A host name, an IPv4 address or an IPv6 address in brackets, and a port.
_ADDR: Final = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")

# Also `*.` and a domain, for all names in it.
_HOST_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def _no_bool(value: object) -> object:
    if isinstance(value, bool):  # a bool is an int in Python, but not in a configuration
        raise ValueError(f"expected a whole number, not {str(value).lower()}")
    return value


def _split(value: object) -> object:
    """A list from the text of the environment, a flag or a ``.properties`` file: as in TOML, or with separators."""
    if not isinstance(value, str):
        return value
    with contextlib.suppress(tomllib.TOMLDecodeError):
        read: object = tomllib.loads(f"value = {value}")["value"]
        if isinstance(read, list):
            return read
    return [part.strip() for part in re.split("[;,]", value) if part.strip()]


def _check_addrs(addrs: tuple[str, ...]) -> tuple[str, ...]:
    for addr in addrs:
        found = _ADDR.fullmatch(addr)
        if found is None or not 0 < int(found[1]) <= 65535:
            raise ValueError(f"{addr!r} is not host:port")
    return addrs


def _check_host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is neither a host name nor *.DOMAIN (all names of a domain), without a port")
    return names


def _check_http_urls(urls: tuple[str, ...]) -> tuple[str, ...]:
    for url in urls:
        _check_addrs((re.sub("^https?://", "", url).removesuffix("/"),))
    return tuple(url.removesuffix("/") if "://" in url else f"http://{url}" for url in urls)


def _check_networks(networks: tuple[str, ...]) -> tuple[str, ...]:
    checked = []
    for network in networks:
        try:
            checked.append(str(ipaddress.ip_network(network)))
        except ValueError as error:
            raise ValueError(f"{network!r} is not a network in CIDR notation: {error}") from None
    return tuple(checked)


class Section(BaseModel):
    """A table of the configuration: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class _Advanced:
    """The type of ``ADVANCED``."""


#: Marks a setting that users find below ``[advanced]``: not supported, and may change in any release.
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
Names = Annotated[tuple[NonEmptyStr, ...], BeforeValidator(_split)]
Addrs = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_check_addrs)]
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
    """The expected value: ``expected a whole number``, ``must be at most 65535``."""
    text = _TEXTS.get(problem["type"])
    if text is None:
        return problem["msg"].removeprefix("Value error, ")
    return text.format(**problem.get("ctx", {}))
