"""The answers that clients of an address view receive from a whole server."""

import asyncio
from typing import Any

import orjson
import pytest

from namesrv_stream.processor.name_server import Access, Options, networks_of
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.address_views import VIEWS_NAMESPACE
from namesrv_stream.server.view.client_views import set_configured_views
from tests.support.name_server import MASTER, SLAVE, a_body, a_registration_request, a_route_request, a_topic
from tests.support.server_rig import MemoryTransport, Rig, turn

NAMED = {"broker_name": "broker-*", "to": "{broker_name}-{broker_id}.example.org:{10911+id}"}
INNER = {"0": MASTER, "1": SLAVE}
OUTER = {"0": "broker-a-0.example.org:10911", "1": "broker-a-1.example.org:10912"}
MEMBER_TOPIC = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
BODY = a_body({"TopicTest": a_topic(), "other": a_topic(), MEMBER_TOPIC: a_topic()})
CLUSTER_INFO = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
MEMBERS = RemotingCommand(
    RequestCode.GET_BROKER_MEMBER_GROUP, ext_fields={"brokerName": "broker-a", "clusterName": "c0"}
)


def a_rig(**options: Any) -> Rig:
    """A server with a master and its slave, which registered over separate connections."""
    rig = Rig(**options)
    rig.talk()
    rig.ask(rig.connect("10.0.0.1"), a_registration_request(body=BODY))
    rig.ask(rig.connect("10.0.0.2"), a_registration_request(SLAVE, 1, body=BODY))
    return rig


def addrs(rig: Rig, client: MemoryTransport, topic: str = "TopicTest") -> Any:
    """The addresses in the route that a client receives; None without a route."""
    answer = rig.ask(client, a_route_request(topic))
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.body is not None
    route = orjson.loads(answer.body)
    assert {q["brokerName"] for q in route["queueDatas"]} == {b["brokerName"] for b in route["brokerDatas"]}
    return {b["brokerName"]: b["brokerAddrs"] for b in route["brokerDatas"]}


async def test_clients_of_a_listener_get_mapped_addresses_and_others_do_not() -> None:
    rig = a_rig()
    inside, outside = rig.connect(), rig.connect(listener="outside")
    assert addrs(rig, outside) == {"broker-a": INNER}
    put = await rig.put_view("outside", listeners=["outside"], mappings=[NAMED])
    assert put.code == ResponseCode.SUCCESS
    for _ in range(3):  # the second and later answers are cached
        assert addrs(rig, outside) == {"broker-a": OUTER}
        assert addrs(rig, inside) == {"broker-a": INNER}


async def test_a_view_can_be_changed_and_deleted_without_a_restart() -> None:
    rig = a_rig()
    outside = rig.connect(listener="outside")
    await rig.put_view("outside", listeners=["outside"], mappings=[NAMED])
    assert addrs(rig, outside) == {"broker-a": OUTER}
    await rig.put_view("outside", listeners=["outside"], mappings=[{"to": "node:{30000+id}"}])
    assert addrs(rig, outside) == {"broker-a": {"0": "node:30000", "1": "node:30001"}}
    rig.commit()
    assert addrs(rig, outside) == {"broker-a": {"0": "node:30000", "1": "node:30001"}}
    fields = {"namespace": VIEWS_NAMESPACE, "key": "outside"}
    rig.connect("127.0.0.1").deliver(encode_frame(RemotingCommand(RequestCode.DELETE_KV_CONFIG, ext_fields=fields)))
    assert addrs(rig, outside) == {"broker-a": INNER}


async def test_the_network_of_a_client_chooses_its_view() -> None:
    rig = a_rig()
    await rig.put_view("office", networks=["192.0.2.0/24"], mappings=[NAMED])
    assert addrs(rig, rig.connect("192.0.2.7")) == {"broker-a": OUTER}
    assert addrs(rig, rig.connect("198.51.100.7")) == {"broker-a": INNER}


@pytest.mark.parametrize(("networks", "expected"), [(("10.7.0.0/16",), OUTER), ((), INNER)])
async def test_a_preamble_chooses_the_view_if_it_comes_from_a_trusted_proxy(networks: Any, expected: Any) -> None:
    rig = a_rig(access=Access(proxy_networks=networks_of(networks)))
    await rig.put_view("office", networks=["192.0.2.0/24"], mappings=[NAMED])
    proxy = rig.connect("10.7.1.1")
    proxy.deliver(b"PROXY TCP4 192.0.2.7 10.0.0.9 4000 9876\r\n")
    assert addrs(rig, proxy) == {"broker-a": expected}


async def test_cluster_info_and_member_groups_are_mapped() -> None:
    rig = a_rig()
    await rig.put_view("outside", listeners=["outside"], mappings=[NAMED])
    outside = rig.connect(listener="outside")
    info: Any = fastjson.loads(rig.ask(outside, CLUSTER_INFO).body or b"")
    assert {str(i): a for i, a in info["brokerAddrTable"]["broker-a"]["brokerAddrs"].items()} == OUTER
    group: Any = fastjson.loads(rig.ask(outside, MEMBERS).body or b"")
    assert {str(i): a for i, a in group["brokerMemberGroup"]["brokerAddrs"].items()} == OUTER
    topics: Any = fastjson.loads(
        rig.ask(outside, RemotingCommand(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)).body or b""
    )
    assert topics["brokerAddr"] == OUTER["0"]


async def test_brokers_never_receive_mapped_addresses() -> None:
    rig = a_rig()
    await rig.put_view("everyone", networks=["0.0.0.0/0"], mappings=[NAMED])
    slave = rig.connect("10.0.0.2")
    answer = rig.ask(slave, a_registration_request(SLAVE, 1, body=BODY))
    assert (answer.ext_fields or {})["masterAddr"] == MASTER
    assert addrs(rig, slave) == {"broker-a": INNER}
    assert MASTER.encode() in (rig.ask(slave, CLUSTER_INFO).body or b"")
    assert MASTER.encode() in (rig.ask(slave, MEMBERS).body or b"")
    # Brokers may read their own group by this topic before they register.
    assert addrs(rig, rig.connect(), MEMBER_TOPIC) == {"broker-a": INNER}


async def test_unmapped_addresses_are_left_out_if_the_view_says_so() -> None:
    rig = a_rig()
    rig.ask(rig.connect(), a_registration_request("10.0.1.1:10911", brokerName="other-b", body=BODY))
    mappings = [{"broker_addr": SLAVE, "to": "slave:1"}]
    await rig.put_view("outside", listeners=["outside"], mappings=mappings, unmapped="omit")
    outside = rig.connect(listener="outside")
    assert addrs(rig, outside) == {"broker-a": {"1": "slave:1"}}
    info: Any = fastjson.loads(rig.ask(outside, CLUSTER_INFO).body or b"")
    assert list(info["brokerAddrTable"]) == ["broker-a"]
    assert info["clusterAddrTable"] == {"c0": ["broker-a"]}
    await rig.put_view("outside", listeners=["outside"], unmapped="omit")
    assert addrs(rig, outside) is None
    await rig.put_view("outside", listeners=["outside"], mappings=mappings)
    assert addrs(rig, outside) == {"broker-a": {"0": MASTER, "1": "slave:1"}, "other-b": {"0": "10.0.1.1:10911"}}


async def test_the_address_of_an_acting_master_is_mapped_by_its_own_id() -> None:
    rig = Rig(options=Options(support_acting_master=True))
    rig.talk()
    body = a_body({"TopicTest": a_topic(perm=4), "other": a_topic(perm=4)})
    rig.ask(rig.connect(), a_registration_request(SLAVE, 1, body=body, enableActingMaster="true"))
    await rig.put_view("outside", listeners=["outside"], mappings=[NAMED])
    assert addrs(rig, rig.connect()) == {"broker-a": {"0": SLAVE}}
    assert addrs(rig, rig.connect(listener="outside")) == {"broker-a": {"0": OUTER["1"]}}


async def test_an_invalid_view_is_refused_and_changes_nothing() -> None:
    rig = a_rig()
    await rig.put_view("outside", listeners=["outside"], mappings=[NAMED])
    refused = await rig.put_view("outside", mappings=[{"to": "nowhere"}])
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "address view 'outside': mappings[0].to: 'nowhere' is not host:port"
    refused = await rig.put_view("lan", listeners=["outside"])
    assert refused.remark == "address view 'lan': outside belongs to address view 'outside'"
    assert addrs(rig, rig.connect(listener="outside")) == {"broker-a": OUTER}


async def test_a_configured_view_is_stored_once_unless_a_view_of_its_name_exists() -> None:
    rig = Rig()
    documents = {"outside": '{"listeners": ["outside"]}', "lan": "{}"}
    setting = asyncio.ensure_future(set_configured_views(documents, rig.server, rig.gateway, rig.core.services.origin))
    await turn()
    assert rig.server.views.by_name == {}  # Kafka has not answered yet
    rig.talk()
    await rig.put_view("lan", networks=["192.0.2.0/24"])
    await turn()
    assert "outside" not in rig.server.views.by_name  # the table does not contain the start of this server yet
    rig.commit()
    async with asyncio.timeout(60):
        while not setting.done():
            rig.publisher.ack()
            await asyncio.sleep(0.01)
    assert rig.server.views.by_name["outside"].listeners == ("outside",)
    assert rig.server.views.by_name["lan"].networks
    assert rig.publisher.kinds().count("kv_put") == 2
