"""Queries to a name server, and the decoding of answers."""

import pytest

from namesrv_stream.client import (
    NameServers,
    UnexpectedAnswer,
    cluster_info,
    topic_list,
    topic_route,
    topics_of_cluster,
)
from namesrv_stream.errors import TopicNotExist
from namesrv_stream.remoting.command import MQ_VERSION, response_to
from tests.support.scripted_name_server import ScriptedNameServer


async def test_a_route_is_requested_in_standard_json() -> None:
    body = b'{"brokerDatas":[],"queueDatas":[]}'
    async with ScriptedNameServer(lambda request: [response_to(request, 0, body=body)]) as server:
        servers = NameServers([server.addr])
        await topic_route(servers, "t")
        await servers.close()
    asked = server.requests[0]
    assert (asked.code, asked.version) == (105, MQ_VERSION)
    assert asked.ext_fields == {"topic": "t", "acceptStandardJsonOnly": "true"}


async def test_topic_without_a_route_is_an_error() -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, 17, remark="No topic route info")]) as server:
        servers = NameServers([server.addr])
        with pytest.raises(TopicNotExist) as caught:
            await topic_route(servers, "t")
        await servers.close()
    assert caught.value.topic == "t"


async def test_a_refusal_carries_code_and_remark() -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, 2, remark="busy")]) as server:
        servers = NameServers([server.addr])
        with pytest.raises(UnexpectedAnswer) as caught:
            await cluster_info(servers)
        await servers.close()
    assert (caught.value.request_code, caught.value.code, caught.value.remark) == (106, 2, "busy")


async def test_topics_of_all_clusters_or_one_are_requested() -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, 0, body=b'{"topicList":["t"]}')]) as server:
        servers = NameServers([server.addr])
        assert await topic_list(servers) == ("t",)
        assert await topics_of_cluster(servers, "c") == ("t",)
        await servers.close()
    assert [(asked.code, asked.ext_fields) for asked in server.requests] == [(206, None), (224, {"cluster": "c"})]
