"""The part of the log that a replay is about, as people say it and as offsets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from namesrv_stream.errors import ConfigError

_SOURCE: Final = "command line"
_LAST_MS: Final = 253_402_300_800_000  # the year 10000: beyond what a date can say


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


def parse_instant(flag: str, text: str) -> int:
    """Epoch milliseconds, from those or from ISO 8601, in UTC where it says nothing else.

    Raises:
        ConfigError: It is neither, or not within the years 1970 to 9999.
    """
    try:
        at_ms = int(text) if text.isdecimal() else _iso_ms(text)
    except ValueError:
        reason = f"{text!r} is neither ISO 8601, as 2026-01-31T03:12:00, nor epoch milliseconds"
        raise ConfigError(_SOURCE, flag, reason) from None
    if not 0 <= at_ms < _LAST_MS:
        raise ConfigError(_SOURCE, flag, f"{text!r} is not within the years 1970 to 9999")
    return at_ms


def _iso_ms(text: str) -> int:
    instant = datetime.fromisoformat(text)
    return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)


def instant_text(at_ms: int) -> str:
    """Epoch milliseconds below the year 10000 as ISO 8601."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def end_offset(given: int | None, covered: int, partition: int, flag: str) -> int:
    """The end of the range: as given, else where the tables end.

    Raises:
        ConfigError: The tables do not reach so far.
    """
    if given is not None and given > covered:
        raise ConfigError(_SOURCE, flag, f"is {given}, but the tables end at {covered} in partition {partition}")
    return covered if given is None else given
