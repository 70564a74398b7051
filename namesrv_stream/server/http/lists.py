"""What there is, as lists: topics, clusters, brokers, KV entries. Each is of one moment, and made in short steps."""

from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.server.fleet import Fleet
from namesrv_stream.server.http.problems import Problem
from namesrv_stream.server.steps import Steps

_JSON: Final = "application/json"
#: Of ``?state=``; without it those that are alive or held.
BROKER_STATES: Final = ("alive", "held", "ended", "any")


class Lists:
    """Endpoints; of one event loop.

    Args:
        server: Whose view is listed.
        fleet: Its brokers.
        steps: Shared by all that is long.
    """

    def __init__(self, server: NameServer, fleet: Fleet, steps: Steps) -> None:
        self._server = server
        self._fleet = fleet
        self._steps = steps

    async def topics(self, request: Request) -> Response:
        """Names of topics; ``?cluster=``, ``?prefix=``, and ``?limit=`` a page, the next one ``?after=`` its last."""
        query = request.query_params
        limit, after = int(query["limit"]) if "limit" in query else None, query.get("after", "")
        prefix, cluster = query.get("prefix", ""), query.get("cluster")
        names = self._topics_of(cluster) if cluster is not None else list(self._server.table.topics())
        wanted = (name for name in names if name.startswith(prefix) and (not after or name > after))
        found = await self._steps.sorted(wanted)
        page = found if limit is None else found[:limit]
        following = page[-1] if page and len(page) < len(found) else None
        head = orjson.dumps({"count": len(page), "next": following})[:-1] + b',"topics":['
        return StreamingResponse(self._steps.json_list(page, head, b"]}"), media_type=_JSON)

    async def clusters(self, _: Request) -> Response:
        """Cluster → broker name → brokerId → address."""
        table = self._server.table
        clusters = {cluster: list(names) for cluster, names in table.clusters().items()}
        return StreamingResponse(self._clusters_json(clusters, table.groups.copy()), media_type=_JSON)

    async def _clusters_json(
        self, clusters: Mapping[str, list[str]], groups: Mapping[str, BrokerGroup]
    ) -> AsyncIterator[bytes]:
        between = b"{"
        for cluster, names in sorted(clusters.items()):
            ordered = [groups[name] for name in await self._steps.sorted(names)]
            members = (_member(g.broker_name, {str(i): a for i, a in sorted(g.broker_addrs.items())}) for g in ordered)
            yield between + orjson.dumps(cluster) + b":"
            async for part in self._members(members):
                yield part
            between = b","
        yield b"{}" if between == b"{" else b"}"

    async def brokers(self, request: Request) -> Response:
        """Every live broker process, or those of ``?state=``, which may be gone; ``?cluster=`` for one cluster."""
        cluster, state = request.query_params.get("cluster"), request.query_params.get("state")
        ended = await self._fleet.ended() if state in ("ended", "any") else []
        groups = await self._steps.sorted(
            list(self._server.table.groups.values()) if state != "ended" else [],
            key=lambda group: (group.cluster, group.broker_name),
        )
        read = self._fleet.reader()
        wanted = (
            broker.as_json()
            for broker in chain((broker for group in groups for broker in read(group)), ended)
            if cluster in (None, broker.key.live_key.cluster) and state in (None, "any", broker.state)
        )
        return StreamingResponse(self._steps.json_list(wanted), media_type=_JSON)

    async def kv(self, _: Request) -> Response:
        """Namespace → key → value."""
        namespaces = {namespace: entries.copy() for namespace, entries in self._server.table.kv.items()}
        return StreamingResponse(self._kv_json(namespaces), media_type=_JSON)

    async def _kv_json(self, namespaces: Mapping[str, Mapping[str, str]]) -> AsyncIterator[bytes]:
        between = b"{"
        for namespace, entries in sorted(namespaces.items()):
            yield between + orjson.dumps(namespace) + b":"
            async for part in self._members(_member(key, value) for key, value in entries.items()):
                yield part
            between = b","
        yield b"{}" if between == b"{" else b"}"

    async def kv_namespace(self, request: Request) -> Response:
        """Key → value."""
        namespace = request.path_params["namespace"]
        entries = self._server.table.kv.get(namespace)
        if entries is None:
            raise Problem(404, f"no KV namespace {namespace}")
        members = (_member(key, value) for key, value in entries.copy().items())
        return StreamingResponse(self._members(members), media_type=_JSON)

    async def _members(self, members: Iterator[bytes]) -> AsyncIterator[bytes]:
        """An object of these members."""
        between = b"{"
        async for found in self._steps.lists(members):
            yield between + b",".join(found)
            between = b","
        yield b"{}" if between == b"{" else b"}"

    def _topics_of(self, cluster: str) -> Iterator[str]:
        table = self._server.table
        groups = [table.group(name) for name in table.clusters().get(cluster, ())]
        seen: set[str] = set()
        for group in groups:
            for topic in group.topics:
                if topic not in seen:
                    seen.add(topic)
                    yield topic


def _member(key: str, value: Any) -> bytes:
    return orjson.dumps(key) + b":" + orjson.dumps(value)
