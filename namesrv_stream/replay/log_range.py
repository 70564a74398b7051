"""The part of the log that a replay is about, as people say it and as offsets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from namesrv_stream.errors import ConfigError

_SOURCE: Final = "command line"


@dataclass(frozen=True, slots=True)
class GivenOffsets:
    """Offsets as given.

    Attributes:
        flag: The flag that gave them.
        everywhere: Of partitions that have none of their own; None where none was given.
        of_partition: partition → offset.
    """

    flag: str
    everywhere: int | None
    of_partition: Mapping[int, int]

    def get(self, partition: int) -> int | None:
        return self.of_partition.get(partition, self.everywhere)

    def check(self, partitions: int) -> None:
        """Refuse offsets of partitions that the topic does not have.

        Raises:
            ConfigError: There are some.
        """
        for partition in sorted(self.of_partition):
            if partition >= partitions:
                raise ConfigError(
                    _SOURCE, self.flag, f"there is no partition {partition}: they are 0 to {partitions - 1}"
                )


def parse_offsets(flag: str, texts: Iterable[str]) -> GivenOffsets:
    """Offsets from ``OFFSET`` or ``PARTITION:OFFSET``, each partition once.

    Raises:
        ConfigError: A text is neither.
    """
    everywhere: int | None = None
    of_partition: dict[int, int] = {}
    for text in texts:
        partition, colon, offset = text.rpartition(":")
        if not (offset.isdecimal() and (partition.isdecimal() if colon else True)):
            raise ConfigError(_SOURCE, flag, f"{text!r} is neither OFFSET nor PARTITION:OFFSET")
        if colon:
            of_partition[int(partition)] = int(offset)
        else:
            everywhere = int(offset)
    return GivenOffsets(flag, everywhere, of_partition)
