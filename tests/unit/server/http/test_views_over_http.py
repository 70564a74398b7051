"""Address views at the HTTP port: routes in a view, and the addresses for which a view has no mapping."""

from namesrv_stream.run_books import RunBook
from namesrv_stream.server.view.client_views import UnmappedAddresses
from tests.support.http_rig import JOB, HttpRig
from tests.support.name_server import MASTER, a_registration_request

PLAIN = a_registration_request()
OTHER = a_registration_request("10.0.0.9:10911", brokerName="other")
MAPPINGS = [{"broker_name": "broker-*", "to": "{broker_name}.example.org:1"}]


async def _served(**document: object) -> HttpRig:
    served = HttpRig()
    served.rig.talk()
    served.commit([], {0: 0}, JOB)
    for request in (PLAIN, OTHER):
        served.rig.ask(served.rig.connect(), request)
    await served.rig.put_view("outside", mappings=MAPPINGS, **document)
    await served.rig.core.unmapped.refresh()
    return served


async def test_a_route_in_a_view_is_the_route_that_its_clients_receive() -> None:
    served = await _served(unmapped="omit")
    async with served.serving():
        inner, outer = await served.get("/routes/TopicTest"), await served.get("/routes/TopicTest?view=outside")
        unknown = await served.get("/routes/TopicTest?view=nowhere")
        await served.rig.put_view("outside", unmapped="omit")
        left_out = await served.get("/routes/TopicTest?view=outside")
    assert [b["brokerAddrs"]["0"] for b in inner.json()["brokerDatas"]] == [MASTER, "10.0.0.9:10911"]
    assert [b["brokerAddrs"]["0"] for b in outer.json()["brokerDatas"]] == ["broker-a.example.org:1"]
    assert (unknown.status, unknown.json()["detail"]) == (404, "no address view nowhere")
    assert left_out.status == 404
    assert "no known broker with an address in view outside offers it" in left_out.json()["detail"]


async def test_unmapped_addresses_are_counted_and_shown() -> None:
    served = await _served()
    async with served.serving():
        health, samples = (await served.get("/healthz")).json(), await served.samples()
        ready, console = await served.get("/readyz"), await served.get("/", Accept="text/html")
        everything = {"broker_name": "*", "to": "{host}:{port}"}
        await served.rig.put_view("outside", mappings=[*MAPPINGS, everything])
        await served.rig.core.unmapped.refresh()
        after, samples_after = (await served.get("/healthz")).json(), await served.samples()
    reason = "address view outside has no mapping for other 0 10.0.0.9:10911: passed on unchanged"
    part = {"name": "address_views", "state": "degraded", "reason": reason, "run_book": RunBook.ADDRESSES_UNMAPPED}
    assert part in health["parts"]
    assert health["state"] == "yellow"
    assert f"address_views: {reason}" in ready.json()["reasons"]
    assert reason.encode() in console.body
    assert samples["rocketmq_namesrv_view_unmapped_addresses", ("outside",)] == 1
    assert {"name": "address_views", "state": "ok"} in after["parts"]
    assert samples_after["rocketmq_namesrv_view_unmapped_addresses", ("outside",)] == 0


async def test_a_listener_without_a_view_is_reported() -> None:
    served = HttpRig()
    served.rig.talk()
    unmapped = UnmappedAddresses(served.rig.server, {"outside": 9877})
    assert unmapped.reasons() == [
        "listener outside has no address view: its clients receive the brokers' own addresses"
    ]
    await served.rig.put_view("outside", listeners=["outside"])
    assert unmapped.reasons() == []
