"""What the mass-expiry guard says of a broker that it keeps: the value of rows of kind ``guard``."""

from typing import NamedTuple

import orjson


class Hold(NamedTuple):
    """A broker that would be gone, were it not one of too many at once.

    Attributes:
        goes_with: The cause with which it goes unless it is heard: ``expired``, ``disconnected`` or ``server_silent``.
        reason: What was seen of the broker itself, for people.
        server_id: Where that was seen.
        since_ms: Log time at which the guard took hold, epoch milliseconds.
        until_ms: Earliest log time at which the hold ends; later where observed time stands still meanwhile.
        ending: How many brokers of the cluster seemed to end then.
        brokers: Of how many.
    """

    goes_with: str
    reason: str
    server_id: str
    since_ms: int
    until_ms: int
    ending: int
    brokers: int


def encode_hold(hold: Hold) -> str:
    """The hold as JSON, by field names."""
    return orjson.dumps(hold._asdict()).decode()


def decode_hold(text: str) -> Hold:
    """Inverse of ``encode_hold``."""
    return Hold(**orjson.loads(text))
