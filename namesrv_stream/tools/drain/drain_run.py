"""A drain: checks the broker, wipes its write permission, and observes until it is safe to stop."""

import asyncio
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from namesrv_stream.client.client_errors import NameServersUnreachable
from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.client.route import MASTER_ID
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.instants import iso_instant
from namesrv_stream.route.model import DrainRecord
from namesrv_stream.text_table import counted
from namesrv_stream.tools.drain.broker_routes import BrokerRoutes, BrokerView
from namesrv_stream.tools.drain.drain_state import DrainState, Step
from namesrv_stream.tools.tool_options import current_operator

#: Between two observations; five times as long as an observation, if that is more.
PAUSE_S: Final = 1.0
_COUNTER_TRIES: Final = 3
_STATUS_INTERVAL_S: Final = 10.0
_MOST_NAMES: Final = 5  # in one message
#: A name server accepts headers of 512 KiB, and the encoding of a KV entry in a header needs some of it.
_MOST_RECORD_BYTES: Final = 384 * 1024


class DrainRefused(NamesrvStreamError):
    """The broker cannot be drained, or its drain cannot be undone; the text says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The durations of a drain, in milliseconds."""

    poll_interval_ms: int
    quiet_ms: int
    timeout_ms: int


class Progress:
    """Prints lines with the time since the start: on stdout, or on stderr if stdout is for JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._file = sys.stderr if as_json else sys.stdout
        self._began_s = time.monotonic()

    @property
    def elapsed_ms(self) -> float:
        """The time since the start, in milliseconds."""
        return (time.monotonic() - self._began_s) * 1000

    def say(self, text: str) -> None:
        """Print a line."""
        print(f"{self.elapsed_ms / 1000:6.1f} s  {printable(text)}", file=self._file, flush=True)


@dataclass(slots=True)
class DrainRun:
    """One run of ``drain`` without ``--undo``.

    Attributes:
        is_resumed: Whether to continue the recorded drain.
        is_forced: Whether to drain a broker that is the only one to accept messages of a topic.
        record: The record, once the permission is wiped.
    """

    routes: BrokerRoutes
    limits: Limits
    progress: Progress
    is_resumed: bool = False
    is_forced: bool = False
    record: DrainRecord | None = field(default=None, init=False)

    @property
    def state(self) -> str:
        """The state that the run leaves if it ends now, and how to go on; "" if it has changed nothing."""
        if self.record is None:
            return ""
        name = self.routes.broker_name
        return f"the write permission of {name} stays removed: --resume continues to wait, --undo restores it"

    async def drain(self) -> DrainState:
        """Wipe the write permission, and wait until the broker is safe to stop or the time limit has passed.

        Returns:
            The last state; its ``step`` says whether the broker is safe to stop.

        Raises:
            DrainRefused: The broker cannot be drained, or it left during the drain.
            NameServersUnreachable: No name server answers.
            NamesrvStreamError: A name server refused the wipe or did not answer.
        """
        name = self.routes.broker_name
        views, failures = await self.routes.views()
        if not views:
            raise NameServersUnreachable(failures)
        self._check_answers(failures)
        master_addr = self._check(views, await self.routes.record())
        await self._check_counter(master_addr)
        if not self.is_resumed:
            views, failures = await self.routes.views()  # again: the wipe also concerns topics that are new since then
            self._check_answers(failures)
            topics = await self._wipe(views)
            self.progress.say(f"{name}: removed the write permission of {counted(topics, 'topic')}; --undo restores it")
        limits = self.limits
        state = DrainState(limits.poll_interval_ms, limits.quiet_ms, SystemClock().monotonic_ms())
        return await self._watch(master_addr, state)

    def _check_answers(self, failures: Mapping[str, str]) -> None:
        for addr, why in failures.items():
            raise DrainRefused(f"name server {addr} does not answer ({why}): a drain needs all name servers")

    def _check(self, views: Mapping[str, BrokerView], record: DrainRecord | None) -> str:
        """Check that the broker can be drained, and return the address of its master.

        Raises:
            DrainRefused: The broker cannot be drained.
        """
        name = self.routes.broker_name
        broker = next((view.broker for view in views.values() if view.broker is not None), None)
        if broker is None:
            raise DrainRefused(_unknown(name, views))
        if broker.master_addr is None:
            others = ", ".join(f"brokerId {i} at {addr}" for i, addr in broker.broker_addrs.items())
            raise DrainRefused(f"{name} has no master, only {others}: no client sends to it")
        if self.is_resumed:
            if record is None:
                raise DrainRefused(f"no drain of {name} is recorded: there is nothing to resume")
            self.record = record
            return broker.master_addr
        if record is not None and any(view.lacking(record.perms) for view in views.values()):
            drained = f"already drained (since {record.at}, by {record.by})"
            raise DrainRefused(f"{name} is {drained}: --resume continues to wait, --undo ends the drain")
        if not any(view.writable for view in views.values()):
            raise DrainRefused(f"no topic of {name} has the write permission: there is nothing to drain")
        only_here = {topic for view in views.values() for topic in view.only_here}
        if only_here and not self.is_forced:
            raise DrainRefused(
                f"only {name} accepts messages of {counted(len(only_here), 'topic')}, so sends would fail:"
                f" {named(only_here)}; create the topics at another broker, or accept this with --force"
            )
        return broker.master_addr

    async def _check_counter(self, master_addr: str) -> None:
        """Check that the broker answers with its counter; tries again, since a starting broker answers with an error.

        Raises:
            DrainRefused: The broker does not answer with its counter.
        """
        for _ in range(_COUNTER_TRIES):
            counter, failure = await self.routes.counter(master_addr)
            if counter is not None:
                return
            await asyncio.sleep(PAUSE_S)
        at = f"{self.routes.broker_name} does not answer at {master_addr} ({failure})"
        raise DrainRefused(f"{at}: nothing shows whether it is in use")

    async def _wipe(self, views: Mapping[str, BrokerView]) -> int:
        """Record the permissions of all topics that have the write permission, and wipe it; returns their number."""
        perms = {topic: perm for view in views.values() for topic, perm in view.writable.items()}
        record = self.record or DrainRecord(iso_instant(SystemClock().now_ms()), current_operator(), {})
        record = replace(record, perms={**record.perms, **perms})
        if len(record.encode()) > _MOST_RECORD_BYTES:
            raise DrainRefused(f"the names of {counted(len(record.perms), 'topic')} are too long for one KV entry")
        self.record = record  # from now on, some name servers may have it
        await self.routes.wipe(record)
        return len(perms)

    async def _watch(self, master_addr: str, state: DrainState) -> DrainState:
        """Observe until the broker is safe or the time limit has passed; wipe again what a registration restored."""
        step, said_s = Step.WIPING, time.monotonic()
        while True:
            began_s = time.monotonic()
            seen, views = await self.routes.observe(master_addr)
            if views and all(view.broker is None for view in views.values()):
                raise DrainRefused(f"{self.routes.broker_name} left the routes before it was safe to stop")
            state = state.after(seen)
            if state.step is Step.SAFE or self.progress.elapsed_ms >= self.limits.timeout_ms:
                return state
            if state.must_wipe:
                state = await self._wipe_again(views, state)
            elif state.step is not step or began_s - said_s >= _STATUS_INTERVAL_S:
                step, said_s = state.step, began_s
                self.progress.say(f"not safe yet: {'; '.join(state.obstacles())}")
            await asyncio.sleep(max(PAUSE_S, 5 * (time.monotonic() - began_s)))

    async def _wipe_again(self, views: Mapping[str, BrokerView], state: DrainState) -> DrainState:
        try:
            topics = await self._wipe(views)
        except NamesrvStreamError as error:
            self.progress.say(f"cannot remove the write permission again, will retry: {error}")
            return state
        self.progress.say(
            f"a registration restored the write permission of {counted(topics, 'topic')}: removed it again"
        )
        return state.wiped_again(SystemClock().monotonic_ms())


def named(topics: Iterable[str]) -> str:
    """Return the first of the topics, sorted, as text."""
    names = sorted(topics)
    return ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")


def _unknown(name: str, views: Mapping[str, BrokerView]) -> str:
    """Return why there is no such broker. For an address, the text says which broker has it."""
    for view in views.values():
        for broker in view.info.brokers.values():
            for broker_id, addr in broker.broker_addrs.items():
                if addr == name and broker_id == MASTER_ID:
                    return f"{name} is an address: drain takes the name of the broker, {broker.broker_name}"
                if addr == name:
                    slave = f"a slave (brokerId {broker_id} of {broker.broker_name})"
                    return f"{name} is the address of {slave}: clients send to its master only"
    return f"no broker {name} is registered at {', '.join(views)}"
