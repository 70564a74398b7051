"""Where the fold keeps broker groups."""

from collections.abc import Iterable
from typing import Protocol

from namesrv_stream.route.group import BrokerGroup, is_nothing


class GroupStore(Protocol):
    """Broker groups by name: a dict, or Spark's state.

    A store that fails raises; the fold lets that through, for it is no fault of the record being folded.
    """

    def get(self, broker_name: str) -> BrokerGroup | None: ...

    def put(self, group: BrokerGroup) -> None: ...

    def names(self) -> Iterable[str]: ...


class GroupDict:
    """A GroupStore in memory."""

    def __init__(self, groups: dict[str, BrokerGroup] | None = None) -> None:
        self.groups = groups if groups is not None else {}

    def get(self, broker_name: str) -> BrokerGroup | None:
        return self.groups.get(broker_name)

    def put(self, group: BrokerGroup) -> None:
        if is_nothing(group):
            self.groups.pop(group.broker_name, None)
        else:
            self.groups[group.broker_name] = group

    def names(self) -> Iterable[str]:
        return sorted(self.groups)
