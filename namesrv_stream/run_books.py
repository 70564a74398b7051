"""Run books: the headings of the documentation that say what to do about a problem.

``/healthz``, ``status``, the console and ``doctor`` name the heading after each reason. A test checks that every
heading exists.
"""

from enum import StrEnum
from typing import Final


class RunBook(StrEnum):
    """The page and heading of a run book."""

    #: The server is stopping.
    STOPPING = "docs/operations.md#what-happens-to-clients-and-brokers"
    #: The server was stalled, or Kafka is slow.
    EVENT_LOOP_STALLS = "docs/operations.md#namesrveventloopstalls"
    #: The server hung and was started again.
    SERVER_HANGS = "docs/operations.md#namesrvserverhangs"
    #: Kafka does not accept the server's records.
    KAFKA_DOWN = "docs/operations.md#namesrvkafkadown"
    #: The tables are damaged, or their storage does not answer.
    TABLES_UNREADABLE = "docs/operations.md#namesrvtablesunreadable"
    #: The server reads other tables than the job writes.
    SERVER_BEHIND = "docs/operations.md#namesrvserverbehind"
    #: The server sees no commit of the job.
    JOB_DOWN = "docs/operations.md#namesrvjobdown"
    #: The job refused records.
    DEAD_LETTERS = "docs/operations.md#namesrvdeadletters"
    #: The guard holds brokers.
    BROKERS_HELD = "docs/operations.md#namesrvbrokersheld"
    #: An address view is incomplete or invalid.
    ADDRESSES_UNMAPPED = "docs/operations.md#namesrvaddressesunmapped"
    #: The native lane cannot be used.
    NATIVE_LANE = "docs/deploy.md#the-native-lane"
    #: The history process does not write.
    HISTORY_BEHIND = "docs/operations.md#namesrvhistorybehind"


#: Until the cause of one of these is repaired, no broker expires. ``doctor`` counts them as faults.
FAULTS: Final = frozenset({RunBook.KAFKA_DOWN, RunBook.TABLES_UNREADABLE, RunBook.JOB_DOWN})


def with_run_book(reason: str, run_book: str | None) -> str:
    """Return a human-readable reason, followed by its run book, if any."""
    return f"{reason}; see {run_book}" if run_book else reason
