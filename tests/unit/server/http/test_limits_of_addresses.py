"""One address cannot take all connections of the HTTP port."""

import asyncio

from tests.support.http_rig import HttpRig, eventually, http_settings


async def test_a_further_connection_of_one_address_takes_the_place_of_the_one_that_has_waited_longest() -> None:
    async with HttpRig(http_settings(max_connections_per_address=3)).serving() as rig, asyncio.timeout(60):
        host, _, port = rig.http.address.rpartition(":")
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        assert await connections[0][0].read() == b""
        await eventually(lambda: rig.figures.http.connections() == 3, "one is closed")
        assert 'http_events_total{event="connection_refused"} 1' in (await rig.figures.text()).decode()
        assert (await rig.get("/topics")).status == 200
        for _, writer in connections:
            writer.close()
