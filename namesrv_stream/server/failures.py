"""How a server ends when one of its parts fails while it runs."""

import logging
from collections.abc import Iterator
from typing import Final

from namesrv_stream.errors import NamesrvStreamError

logger = logging.getLogger(__name__)

_EXIT_FAILED: Final = 1


def exit_code_of(failures: BaseExceptionGroup[BaseException]) -> int:
    """The exit code after parts failed by a bug, which is logged with its trace.

    Raises:
        NamesrvStreamError: One of the failures is ours: its text says what to do.
    """
    for failure in _leaves(failures):
        if isinstance(failure, NamesrvStreamError):
            raise failure from None
    logger.critical("the server ends, a part of it failed", exc_info=failures)
    return _EXIT_FAILED


def _leaves(failures: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for failure in failures.exceptions:
        if isinstance(failure, BaseExceptionGroup):
            yield from _leaves(failure)
        else:
            yield failure
