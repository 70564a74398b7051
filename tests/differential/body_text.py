"""The text of a body as on the wire, with unordered parts sorted.

Bodies are compared as text, not as values, so that quoting of keys, escapes and the order of properties count; only
what Java keeps in hash maps and sets is sorted first. In the strict form Java sorts its maps itself, so their order is
compared, too.
"""

import re
from functools import lru_cache
from typing import Final

_TOKEN: Final = re.compile(r'[{}\[\]:,]|"(?:[^"\\]|\\.)*"|[^\s{}\[\]:,"]+')

#: Properties that are maps, and those that are sets or lists in hash order.
_MAPS: Final = {
    "brokerAddrs",
    "filterServerTable",
    "brokerAddrTable",
    "clusterAddrTable",
    "table",
    "topicQueueMappingByBroker",
    "currIdMap",
}
_SETS: Final = {"topicList", "brokerDatas", "queueDatas"}
#: Properties that list the names of all scenarios; the comparison keeps the entries of one scenario.
_LISTS_OF_ALL: Final = {"topicList", "brokerAddrTable", "clusterAddrTable"}


@lru_cache(maxsize=1 << 15)
def in_order(body: bytes, *, has_sorted_maps: bool = False, only: str = "") -> str:
    """Return the body with unordered parts sorted; a body that is not JSON is unchanged.

    Args:
        body: As received.
        has_sorted_maps: Whether the order of its maps counts.
        only: Of lists of all topics, brokers and clusters, keep the entries that contain this text.
    """
    text = body.decode("utf-8", "backslashreplace")
    if not text.startswith("{"):
        return text
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        return text
    reader = _Reader(tokens, has_sorted_maps, only)
    ordered = reader.value("")
    return ordered if reader.is_at_end else text


class _Reader:
    def __init__(self, tokens: list[str], has_sorted_maps: bool, only: str) -> None:
        self._tokens = tokens
        self._at = 0
        self._has_sorted_maps = has_sorted_maps
        self._only = only

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._tokens)

    def value(self, name: str, inside: str = "") -> str:
        """Return the value of property ``name``, which is inside property ``inside``."""
        token = self._tokens[self._at]
        self._at += 1
        if token == "{":
            members = self._items("}", name, has_keys=True)
            if name in _MAPS and not self._has_sorted_maps:
                members.sort()
            return "{" + ",".join(self._chosen(name, members)) + "}"
        if token == "[":
            items = self._items("]", name, has_keys=False)
            if name in _SETS or inside == "clusterAddrTable":
                items.sort()
            return "[" + ",".join(self._chosen(name, items)) + "]"
        return token

    def _items(self, end: str, name: str, *, has_keys: bool) -> list[str]:
        items = []
        while self._tokens[self._at] != end:
            if self._tokens[self._at] == ",":
                self._at += 1
            if has_keys:
                key = self._tokens[self._at]
                self._at += 2
                items.append(key + ":" + self.value(key.strip('"'), name))
            else:
                items.append(self.value("", name))
        self._at += 1
        return items

    def _chosen(self, name: str, items: list[str]) -> list[str]:
        return [item for item in items if self._only in item] if self._only and name in _LISTS_OF_ALL else items
