"""Decodes large registrations in another process, so that the event loop can answer other requests meanwhile.

A body of 70,000 topics takes 140 ms to decode, and 6 ms to transfer from the other process. A thread would not help:
the decoder holds the interpreter lock.
"""

import asyncio
import ctypes
import logging
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from sys import intern
from typing import Final

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.logs import safe
from namesrv_stream.processor.name_server import DecodedBody
from namesrv_stream.processor.register_body import RegisterBrokerBody, RegistrationBody, decode_register_body
from namesrv_stream.route.model import shared_queue_data

logger = logging.getLogger(__name__)

#: Source: Linux, sys/prctl.h.
_PR_SET_PDEATHSIG: Final = 1


class RegistrationDecoder:
    """Owns the process, and starts it when the first large body arrives. Used by one event loop."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def decode(self, body: RegistrationBody) -> DecodedBody | None:
        """Decode a body in the other process; None if that process fails, so that the caller must decode it."""
        try:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, context, initializer=_end_with_parent)
            pool = self._pool
            decoded = await asyncio.get_running_loop().run_in_executor(pool, _decode, body)
        except Exception as error:  # the process was killed, or cannot start
            logger.warning("registration decoder failed, decoding in the server: %s", safe(repr(error)))
            self.stop()
            return None
        return decoded if isinstance(decoded, BodyDecodeError) else _shared(decoded)

    def stop(self) -> None:
        """Stop the process after its current body."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _end_with_parent() -> None:
    """Ignore Ctrl-C, which the server handles, and exit when the server is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _decode(body: RegistrationBody) -> DecodedBody:
    try:
        return decode_register_body(*body)
    except BodyDecodeError as error:
        return error


def _shared(body: RegisterBrokerBody) -> RegisterBrokerBody:
    """Replace the names and queues of a body, which are copies after unpickling, by the objects of this process.

    The route table compares queues by identity, and the copies would take three times the memory.
    """
    # Topics that shared one object in the other process also share one after unpickling.
    shared = {key: shared_queue_data(*q) for key, q in {id(q): q for q in body.topics.values()}.items()}
    queues = [shared[key] for key in map(id, body.topics.values())]
    return replace(body, topics=dict(zip(map(intern, body.topics), queues, strict=True)))
