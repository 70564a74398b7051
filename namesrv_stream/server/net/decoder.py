"""Decodes large registrations in another process, so that the event loop can answer other requests meanwhile."""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from sys import intern
from typing import Final

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.logs import safe
from namesrv_stream.processes import signal_with_parent
from namesrv_stream.processor.name_server import DecodedBody
from namesrv_stream.processor.register_body import RegisterBrokerBody, RegistrationBody, decode_register_body
from namesrv_stream.route.model import QueueData, shared_queue_data
from namesrv_stream.route.registration_json import encode_topics
from namesrv_stream.server.turns import Queue, Turns

logger = logging.getLogger(__name__)

OnDecoded = Callable[[DecodedBody], None]
_TOPICS_AT_ONCE: Final = 2_048
_NICENESS: Final = 10


class RegistrationDecoder:
    """The other process. It starts when the first large body arrives. Used by one event loop.

    A body of 70,000 topics takes 140 ms to decode, and 6 ms to transfer. A thread would not help: the decoder holds the
    interpreter lock.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._pool: ProcessPoolExecutor | None = None

    def decode(self, body: RegistrationBody, on_decoded: OnDecoded) -> Callable[[], object]:
        """Decode a body, and call ``on_decoded`` later. Return a function that cancels the work if it can.

        If the process fails, the event loop decodes the body itself.
        """
        loop = asyncio.get_running_loop()
        try:
            if self._pool is None:
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, context, initializer=_begin)
            future = self._pool.submit(_decode, body)
        except Exception as error:  # the process cannot start, or was killed
            self._failed(error)
            return loop.call_soon(lambda: on_decoded(_decode(body))).cancel

        def on_done(done: Future[DecodedBody]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._decoded, done, body, on_decoded)

        future.add_done_callback(on_done)
        return future.cancel

    def stop(self) -> None:
        """Stop the process after its current body."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _decoded(self, done: Future[DecodedBody], body: RegistrationBody, on_decoded: OnDecoded) -> None:
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self._failed(error)
            on_decoded(_decode(body))
        else:
            decoded = done.result()
            if isinstance(decoded, str):
                on_decoded(decoded)
            else:
                self._turns.run(_share(decoded, on_decoded), Queue.VITAL)

    def _failed(self, error: BaseException) -> None:
        logger.warning("registration decoder failed, decoding in the server: %s", safe(repr(error)))
        self.stop()


def _begin() -> None:
    """Leave processor time to the server; ignore Ctrl-C, which the server handles; exit when the server is killed."""
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal_with_parent(signal.SIGKILL)


def _decode(body: RegistrationBody) -> DecodedBody:
    try:
        decoded = decode_register_body(*body)
    except BodyDecodeError as error:
        return error.reason
    return replace(decoded, topics_json=encode_topics(decoded.topics))


def _share(body: RegisterBrokerBody, on_decoded: OnDecoded) -> Iterator[None]:
    """Replace names and queues of a body by objects of this process, in steps; then call ``on_decoded``.

    Those of the body are copies after unpickling. The route table compares queues by identity, and the copies would
    take three times the memory.
    """
    # Topics that shared one object in the other process also share one after unpickling.
    shared: dict[int, QueueData] = {}
    topics: dict[str, QueueData] = {}
    rest = iter(body.topics.items())
    while some := list(islice(rest, _TOPICS_AT_ONCE)):
        for topic, queues in some:
            key = id(queues)
            topics[intern(topic)] = shared.get(key) or shared.setdefault(key, shared_queue_data(*queues))
        yield
    on_decoded(replace(body, topics=topics))
