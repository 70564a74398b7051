"""One address cannot take all connections of the HTTP port."""

import asyncio

from tests.support.http_rig import HttpRig, eventually, http_settings


async def test_further_connections_of_one_address_are_closed_at_once() -> None:
    async with HttpRig(http_settings(max_connections_per_address=3)).serving() as rig:
        host, _, port = rig.http.address.rpartition(":")
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        reader, _ = connections[3]
        assert await reader.read() == b""
        connections[0][1].close()
        await eventually(lambda: rig.figures.http.connections() == 2, "one is closed")
        assert (await rig.get("/topics")).status == 200
        assert 'http_events_total{event="connection_refused"} 1' in (await rig.figures.text()).decode()
        for _, writer in connections:
            writer.close()
