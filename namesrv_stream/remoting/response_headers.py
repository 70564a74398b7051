"""Custom headers of a NameServer's responses, typed; the other request codes are answered without one."""

from dataclasses import dataclass

from namesrv_stream.remoting.ext_fields import CommandCustomHeader, boolean, integer, text


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponseHeader(CommandCustomHeader):
    """Answer to 103: what a slave needs to follow its master; empty for masters."""

    ha_server_addr: str | None = text("haServerAddr")
    master_addr: str | None = text("masterAddr")


@dataclass(frozen=True, slots=True)
class QueryDataVersionResponseHeader(CommandCustomHeader):
    """Answer to 322: whether the NameServer holds another DataVersion than the broker's."""

    changed: bool | None = boolean("changed")


@dataclass(frozen=True, slots=True)
class GetKVConfigResponseHeader(CommandCustomHeader):
    """Answer to 101."""

    value: str | None = text("value")


@dataclass(frozen=True, slots=True)
class WipeWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """Answer to 205: how many topics were touched."""

    wipe_topic_count: int | None = integer("wipeTopicCount")


@dataclass(frozen=True, slots=True)
class AddWritePermOfBrokerResponseHeader(CommandCustomHeader):
    """Answer to 327: how many topics were touched."""

    add_topic_count: int | None = integer("addTopicCount")
