"""``drain --undo``: restores exactly the permissions that the drain took away."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from namesrv_stream.route.model import DRAINED_BROKERS, DrainRecord
from namesrv_stream.text_table import counted, plural
from namesrv_stream.tools.drain.broker_routes import BrokerRoutes, BrokerView
from namesrv_stream.tools.drain.drain_run import PAUSE_S, DrainRefused, Limits, Progress, named


@dataclass(slots=True)
class UndoRun:
    """One run of ``drain --undo``.

    Attributes:
        restored: Topics that got the write permission back so far.
    """

    routes: BrokerRoutes
    limits: Limits
    progress: Progress
    restored: set[str] = field(default_factory=set)

    @property
    def state(self) -> str:
        """The state that the run leaves if it ends now, and how to go on; "" if it has changed nothing."""
        if not self.restored:
            return ""
        topics = counted(len(self.restored), "topic")
        return f"{self.routes.broker_name} has the write permission of {topics} again: repeat --undo for the others"

    async def undo(self) -> dict[str, Any]:
        """Restore the permissions once the broker is registered and answers; returns the outcome as JSON.

        Raises:
            DrainRefused: No drain is recorded, or the time limit has passed.
            NamesrvStreamError: A name server refused the change or did not answer.
        """
        name, record = self.routes.broker_name, await self.routes.record()
        if record is None:
            raise DrainRefused(
                f"no drain of {name} is recorded: there is nothing to undo (`kv list {DRAINED_BROKERS}`)"
            )
        said = ""
        while reason := await self._step(record):
            if self.progress.elapsed_ms >= self.limits.timeout_ms:
                raise DrainRefused(f"the drain of {name} is not undone yet: {reason}; repeat --undo")
            if reason != said:
                self.progress.say(f"waiting: {reason}")
                said = reason
            await asyncio.sleep(PAUSE_S)
        await self.routes.forget()
        return await self._outcome(record)

    async def _step(self, record: DrainRecord) -> str:
        """Restore permissions at the first name server that lacks some, if all peers answer.

        Returns:
            Why the undo is not complete yet; "" if it is.
        """
        views, failures = await self.routes.views()
        if reason := await self._not_ready(views, failures):
            return reason
        for addr, view in views.items():
            if lacking := view.lacking(record.perms):
                # Servers of this product share the log, so the next step usually finds the others done.
                await self.routes.restore_at(addr, view.queues, lacking)
                self.restored.update(lacking)
                return f"name server {addr} does not show all permissions yet"
        return ""

    async def _not_ready(self, views: Mapping[str, BrokerView], failures: Mapping[str, str]) -> str:
        for addr, why in failures.items():
            return f"name server {addr} does not answer ({why})"
        for addr, view in views.items():
            if view.broker is None or view.broker.master_addr is None:
                return f"{self.routes.broker_name} is not registered at name server {addr}"
            counter, failure = await self.routes.counter(view.broker.master_addr)
            if counter is None:
                return f"{self.routes.broker_name} does not answer at {view.broker.master_addr} ({failure})"
        return ""

    async def _outcome(self, record: DrainRecord) -> dict[str, Any]:
        """Print what was restored, and return it as JSON."""
        name, restored = self.routes.broker_name, len(self.restored)
        views, _ = await self.routes.views()
        gone = sorted(record.perms.keys() - {topic for view in views.values() for topic in view.queues})
        already = len(record.perms.keys() - self.restored - set(gone))
        if restored or not already:
            self.progress.say(f"{name}: restored the write permission of {counted(restored, 'topic')}")
        if already:
            topics = counted(already, "topic")
            self.progress.say(f"{name}: {topics} had the write permission already, because the broker registered again")
        if gone:
            verb = plural(len(gone), "no longer exists", "no longer exist")
            self.progress.say(f"{name}: {counted(len(gone), 'topic')} {verb}: {named(gone)}")
        return {"broker": name, "restored": restored, "already_writable": already, "gone": gone}
