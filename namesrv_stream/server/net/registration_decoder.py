"""Large registrations are decoded in another process, so that the event loop goes on answering meanwhile.

A body of 70,000 topics takes 140 ms to decode, and 6 ms to take over from the other process. A thread would not help:
the decoder holds the interpreter's lock.
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
    """Owns the process, which is started when the first large body arrives. Belongs to one event loop."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def decode(self, body: RegistrationBody) -> DecodedBody | None:
        """Decode a body in the other process; None where that fails, and the body is to be decoded here."""
        try:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, context, initializer=_end_with_parent)
            pool = self._pool
            decoded = await asyncio.get_running_loop().run_in_executor(pool, _decode, body)
        except Exception as error:  # the process was killed, or cannot be started
            logger.warning("registration decoder failed, decoding in the server: %s", safe(repr(error)))
            self.stop()
            return None
        return decoded if isinstance(decoded, BodyDecodeError) else _shared(decoded)

    def stop(self) -> None:
        """End the process once it has decoded what it was given."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _end_with_parent() -> None:
    """Ignore Ctrl-C, which the server handles, and end when the server is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _decode(body: RegistrationBody) -> DecodedBody:
    try:
        return decode_register_body(*body)
    except BodyDecodeError as error:
        return error


def _shared(body: RegisterBrokerBody) -> RegisterBrokerBody:
    """The body with the names and queues that this process has already: a pickle brings copies of them.

    The route table compares queues by identity, and the copies would take three times the memory.
    """
    # Topics that had one object in the other process have one in the pickle, too.
    shared = {key: shared_queue_data(*q) for key, q in {id(q): q for q in body.topics.values()}.items()}
    queues = [shared[key] for key in map(id, body.topics.values())]
    return replace(body, topics=dict(zip(map(intern, body.topics), queues, strict=True)))
