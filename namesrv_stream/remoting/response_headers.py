"""Custom headers of a NameServer's responses, typed; the other request codes are answered without one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from namesrv_stream.remoting.ext_fields import boolean, integer, read_header, text, write_header


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponseHeader:
    """Answer to 103: what a slave needs to follow its master; empty for masters."""

    ha_server_addr: str | None = text("haServerAddr")
    master_addr: str | None = text("masterAddr")

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str] | None) -> Self:
        return read_header(cls, ext_fields)

    def to_ext_fields(self) -> dict[str, str]:
        return write_header(self)


@dataclass(frozen=True, slots=True)
class QueryDataVersionResponseHeader:
    """Answer to 322: whether the NameServer holds another DataVersion than the broker's."""

    changed: bool | None = boolean("changed")

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str] | None) -> Self:
        return read_header(cls, ext_fields)

    def to_ext_fields(self) -> dict[str, str]:
        return write_header(self)


@dataclass(frozen=True, slots=True)
class GetKVConfigResponseHeader:
    """Answer to 101."""

    value: str | None = text("value")

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str] | None) -> Self:
        return read_header(cls, ext_fields)

    def to_ext_fields(self) -> dict[str, str]:
        return write_header(self)


@dataclass(frozen=True, slots=True)
class WipeWritePermOfBrokerResponseHeader:
    """Answer to 205: how many topics were touched."""

    wipe_topic_count: int | None = integer("wipeTopicCount")

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str] | None) -> Self:
        return read_header(cls, ext_fields)

    def to_ext_fields(self) -> dict[str, str]:
        return write_header(self)


@dataclass(frozen=True, slots=True)
class AddWritePermOfBrokerResponseHeader:
    """Answer to 327: how many topics were touched."""

    add_topic_count: int | None = integer("addTopicCount")

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str] | None) -> Self:
        return read_header(cls, ext_fields)

    def to_ext_fields(self) -> dict[str, str]:
        return write_header(self)
