"""The topics of a pending registration in little memory, because thousands may wait while the job is stopped."""

import zlib
from array import array
from collections.abc import Mapping
from itertools import compress, count

from namesrv_stream.route.model import QueueData


class PackedTopics:
    """Topics as a number for each name: which of the few distinct queues the topic has; 0 if it is absent.

    Args:
        topics: The topics to pack.
        names: Name → its place, for the topics of all registrations of a broker name. New names are added; none may be
            removed.
    """

    __slots__ = ("_names", "_numbers", "_queues")

    def __init__(self, topics: Mapping[str, QueueData], names: dict[str, int]) -> None:
        names.update(zip(topics.keys() - names.keys(), count(len(names)), strict=False))
        self._names = names
        self._queues = dict(enumerate(set(topics.values()), 1))
        number_of: dict[QueueData | None, int] = {queues: number for number, queues in self._queues.items()}
        number_of[None] = 0
        self._numbers = zlib.compress(array("I", map(number_of.__getitem__, map(topics.get, names))), level=1)

    def unpacked(self) -> dict[str, QueueData]:
        """Return the topics, in the order of the names."""
        numbers = array("I", zlib.decompress(self._numbers))
        queues = map(self._queues.__getitem__, filter(None, numbers))
        return dict(zip(compress(self._names, numbers), queues, strict=True))
