"""Writes the configured address views to Kafka, and finds broker addresses for which a view has no mapping.

Matching thousands of brokers takes long, so these addresses are found in the background and in steps.
"""

import asyncio
import logging
from collections.abc import Mapping
from itertools import chain
from typing import Final

from namesrv_stream.errors import NamesrvStreamError, RequestError
from namesrv_stream.processor.name_server import Accepted, NameServer
from namesrv_stream.route.address_views import VIEWS_NAMESPACE, Broker
from namesrv_stream.route.events import KvPut, Origin
from namesrv_stream.server.gateway.gateway import Gateway
from namesrv_stream.server.steps import Steps

_INTERVAL_S: Final = 1.0
_RETRY_S: Final = 5.0
_START_POLL_S: Final = 0.2
#: Addresses that a reason shows.
_SHOWN: Final = 3


logger = logging.getLogger(__name__)


async def set_configured_views(
    documents: Mapping[str, str], name_server: NameServer, gateway: Gateway, origin: Origin
) -> None:
    """Store every configured address view as a KV entry, unless there is a view of the same name."""
    await gateway.connected.wait()
    # The table must contain what was in the log before this start, because the log may contain a view of that name.
    while not gateway.view.has_own_start(gateway.limits.partitions):  # noqa: ASYNC110 (no event says so)
        await asyncio.sleep(_START_POLL_S)
    for name, document in documents.items():
        while name not in name_server.table.kv.get(VIEWS_NAMESPACE, {}):
            error = await _change(gateway, KvPut(origin, VIEWS_NAMESPACE, name, document))
            if error is None:
                logger.info("configured address view set view=%s", name)
            else:
                logger.warning("setting the configured address view failed view=%s reason=%s", name, error)
                await asyncio.sleep(_RETRY_S)


async def _change(gateway: Gateway, event: KvPut) -> NamesrvStreamError | None:
    """Apply a change of a view and wait until it is in the log; return the error if it failed, else None."""
    outcome: asyncio.Future[NamesrvStreamError | None] = asyncio.get_running_loop().create_future()

    def settled(error: NamesrvStreamError | None) -> None:
        if not outcome.done():  # the server cancels it when it stops
            outcome.set_result(error)

    try:
        gateway.change((Accepted(event, event),), settled)
    except RequestError as error:
        return error
    return await outcome


class UnmappedAddresses:
    """The unmapped addresses of one server. Used by one event loop.

    Attributes:
        by_view: Name of a view → its brokers without a mapping, as of the last ``refresh``.
    """

    def __init__(self, server: NameServer, listeners: Mapping[str, int]) -> None:
        """``listeners`` are the server's additional listeners."""
        self.by_view: dict[str, list[Broker]] = {}
        self._server = server
        self._listeners = listeners
        self._steps = Steps()
        self._version: tuple[object, ...] = ()

    @property
    def is_relevant(self) -> bool:
        """Whether there are address views, or additional listeners, which need one."""
        return bool(self._server.views.entries or self._listeners)

    async def watch(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(_INTERVAL_S)

    async def refresh(self) -> None:
        """Find the unmapped addresses again, if views or brokers have changed."""
        views, table = self._server.views, self._server.table
        version = (views, table, table.brokers_version)
        if version == self._version:
            return
        found = {}
        for name, view in views.by_name.items():
            groups = list(table.registered_groups())
            of_groups = (list(view.unmapped(group.broker_name, group.broker_addrs)) for group in groups)
            found[name] = [*chain.from_iterable(await self._steps.all(of_groups))]
        self.by_view, self._version = found, version

    def reasons(self) -> list[str]:
        """Return a text for every problem that an operator should see."""
        views = self._server.views
        reasons = list(views.faults.values())
        named = {listener for view in views.by_name.values() for listener in view.listeners}
        for listener in self._listeners.keys() - named:
            reasons.append(f"listener {listener} has no address view: its clients receive the brokers' own addresses")
        for name, brokers in self.by_view.items():
            view = views.by_name.get(name)
            if brokers and view is not None:
                shown = ", ".join(f"{b.broker_name} {b.broker_id} {b.broker_addr}" for b in brokers[:_SHOWN])
                more = f" and {len(brokers) - _SHOWN} more" if len(brokers) > _SHOWN else ""
                effect = "passed on unchanged" if view.keeps_unmapped else "left out"
                reasons.append(f"address view {name} has no mapping for {shown}{more}: {effect}")
        return reasons
