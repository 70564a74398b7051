"""The queries of clients and operators, which any of several name servers can answer."""

from namesrv_stream.client.client_errors import UnexpectedAnswer
from namesrv_stream.client.name_servers import NameServers
from namesrv_stream.client.route import (
    ClusterInfo,
    TopicRouteData,
    decode_cluster_info,
    decode_kv_entries,
    decode_topic_list,
    decode_topic_route,
)
from namesrv_stream.errors import QueryNotFound, TopicNotExist
from namesrv_stream.remoting.command import MQ_VERSION, LanguageCode, RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.headers import (
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)
from namesrv_stream.route.model import Hold, decode_hold
from namesrv_stream.route.table import HELD_NAMESPACE


def request(code: int, ext_fields: dict[str, str] | None = None, body: bytes | None = None) -> RemotingCommand:
    """Return a request that states this client's language, and the release of RocketMQ that it behaves like."""
    return RemotingCommand(
        code=code, language=LanguageCode.PYTHON, version=MQ_VERSION, ext_fields=ext_fields, body=body
    )


async def topic_route(servers: NameServers, topic: str, timeout_ms: int = 3_000) -> TopicRouteData:
    """Return the route of a topic.

    Raises:
        TopicNotExist: No broker serves it.
        UnexpectedAnswer: The server refused, or its answer cannot be read.
        NameServersUnreachable: No server answered.
    """
    header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    response = await servers.invoke(request(code, header.to_ext_fields()), timeout_ms)
    if response.code == ResponseCode.TOPIC_NOT_EXIST:
        raise TopicNotExist(topic)
    return decode_topic_route(topic, _body(code, response))


async def cluster_info(servers: NameServers, timeout_ms: int = 3_000) -> ClusterInfo:
    """Return all clusters and brokers.

    Raises:
        UnexpectedAnswer: The server refused, or its answer cannot be read.
        NameServersUnreachable: No server answered.
    """
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    return decode_cluster_info(_body(code, await servers.invoke(request(code), timeout_ms)))


async def topic_list(servers: NameServers, timeout_ms: int = 3_000) -> tuple[str, ...]:
    """Return the names of all topics, sorted.

    Raises:
        UnexpectedAnswer: The server refused, or its answer cannot be read.
        NameServersUnreachable: No server answered.
    """
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    return decode_topic_list(code, _body(code, await servers.invoke(request(code), timeout_ms)))


async def topics_of_cluster(servers: NameServers, cluster: str, timeout_ms: int = 3_000) -> tuple[str, ...]:
    """Return the names of the topics that a cluster's brokers serve, sorted; none for an unknown cluster.

    Raises:
        UnexpectedAnswer: The server refused, or its answer cannot be read.
        NameServersUnreachable: No server answered.
    """
    code = RequestCode.GET_TOPICS_BY_CLUSTER
    header = GetTopicsByClusterRequestHeader(cluster=cluster)
    response = await servers.invoke(request(code, header.to_ext_fields()), timeout_ms)
    return decode_topic_list(code, _body(code, response))


async def kv_value(servers: NameServers, namespace: str, key: str, timeout_ms: int = 3_000) -> str:
    """Return one entry of the key-value table.

    Raises:
        QueryNotFound: There is no such entry.
        UnexpectedAnswer: The server refused, or its answer cannot be read.
        NameServersUnreachable: No server answered.
    """
    code = RequestCode.GET_KV_CONFIG
    header = GetKVConfigRequestHeader(namespace=namespace, key=key)
    response = await servers.invoke(request(code, header.to_ext_fields()), timeout_ms)
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        raise QueryNotFound(response.remark or f"no entry {key} in namespace {namespace}")
    expect_success(code, response)
    value = GetKVConfigResponseHeader.from_ext_fields(response.ext_fields).value
    if value is None:
        raise UnexpectedAnswer(code, 0, "no value")
    return value


async def kv_table(servers: NameServers, namespace: str, timeout_ms: int = 3_000) -> dict[str, str]:
    """Return all entries of a namespace, sorted by key.

    Raises:
        QueryNotFound: There is no such namespace.
        UnexpectedAnswer: The server refused, or its answer cannot be read.
        NameServersUnreachable: No server answered.
    """
    return decode_kv_table(namespace, await servers.invoke(kv_table_request(namespace), timeout_ms))


async def held_brokers(servers: NameServers, timeout_ms: int = 3_000) -> dict[str, Hold]:
    """Return the brokers that the mass-expiry guard protects, by their ``table.held_key``; none at a Java name server.

    Raises:
        UnexpectedAnswer: The server refused, or its answer cannot be read.
        NameServersUnreachable: No server answered.
    """
    try:
        entries = await kv_table(servers, HELD_NAMESPACE, timeout_ms)
        return {key: decode_hold(text) for key, text in entries.items()}
    except QueryNotFound:
        return {}
    except (TypeError, ValueError):
        raise UnexpectedAnswer(RequestCode.GET_KVLIST_BY_NAMESPACE, 0, "no holds of the guard") from None


async def brokers_and_holds(servers: NameServers, timeout_ms: int = 3_000) -> tuple[ClusterInfo, dict[str, Hold]]:
    """Return all brokers, and the protected ones; errors are those of ``cluster_info`` and ``held_brokers``."""
    return await cluster_info(servers, timeout_ms), await held_brokers(servers, timeout_ms)


def kv_table_request(namespace: str) -> RemotingCommand:
    """Return the request 219 GET_KVLIST_BY_NAMESPACE."""
    header = GetKVListByNamespaceRequestHeader(namespace=namespace)
    return request(RequestCode.GET_KVLIST_BY_NAMESPACE, header.to_ext_fields())


def decode_kv_table(namespace: str, response: RemotingCommand) -> dict[str, str]:
    """Decode the answer to 219.

    Raises:
        QueryNotFound: There is no such namespace.
        UnexpectedAnswer: The server refused, or its answer cannot be read.
    """
    code = RequestCode.GET_KVLIST_BY_NAMESPACE
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        raise QueryNotFound(response.remark or f"no namespace {namespace}")
    return decode_kv_entries(code, _body(code, response))


def expect_success(request_code: int, response: RemotingCommand) -> None:
    """Raise an error unless the server answered with success.

    Raises:
        UnexpectedAnswer: The server refused.
    """
    if response.code != ResponseCode.SUCCESS:
        raise UnexpectedAnswer(request_code, response.code, response.remark or "without a remark")


def _body(request_code: int, response: RemotingCommand) -> bytes | None:
    expect_success(request_code, response)
    return response.body
