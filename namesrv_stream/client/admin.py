"""Makes operators' changes at every name server of the list, as mqadmin does: Java's servers do not share state.

Every change is idempotent: if a call raises NotOnAllServers, repeating it completes the change.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import orjson

from namesrv_stream.client.client_errors import (
    ConnectionLost,
    NameServersUnreachable,
    NotOnAllServers,
    RequestTimedOut,
    UnexpectedAnswer,
)
from namesrv_stream.client.name_servers import NameServers, Outcome
from namesrv_stream.client.queries import decode_kv_table, expect_success, kv_table_request, request
from namesrv_stream.client.route import QueueData, decode_topic_list
from namesrv_stream.errors import NamesrvStreamError, QueryNotFound
from namesrv_stream.remoting import java_properties
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

T = TypeVar("T")

#: The same as mqadmin's. This product answers within 4 s (server.change_timeout_ms), even if the outcome is unknown.
#: Source: rocketmq 5.3.3, DefaultMQAdminExt.timeoutMillis.
ADMIN_TIMEOUT_MS: Final = 5_000


async def put_kv(
    servers: NameServers, namespace: str, key: str, value: str, timeout_ms: int = ADMIN_TIMEOUT_MS
) -> tuple[str, ...]:
    """Set one entry of the key-value table.

    Returns:
        The addresses of all servers.

    Raises:
        NameServersUnreachable: No server answered.
        NotOnAllServers: Some servers refused or did not answer.
        UnexpectedAnswer: The list has only one server, and it refused.
    """
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    return await _change(servers, RequestCode.PUT_KV_CONFIG, header.to_ext_fields(), timeout_ms)


async def delete_kv(
    servers: NameServers, namespace: str, key: str, timeout_ms: int = ADMIN_TIMEOUT_MS
) -> tuple[str, ...]:
    """Remove one entry of the key-value table, if it exists.

    Returns:
        The addresses of all servers.

    Raises:
        NameServersUnreachable: No server answered.
        NotOnAllServers: Some servers refused or did not answer.
        UnexpectedAnswer: The list has only one server, and it refused.
    """
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    return await _change(servers, RequestCode.DELETE_KV_CONFIG, header.to_ext_fields(), timeout_ms)


async def delete_topic(
    servers: NameServers, topic: str, cluster: str | None = None, timeout_ms: int = ADMIN_TIMEOUT_MS
) -> tuple[str, ...]:
    """Delete the route of a topic; brokers that still have the topic restore it with their next registration.

    Args:
        cluster: Delete only the routes to brokers of this cluster; None for all.

    Returns:
        The addresses of all servers.

    Raises:
        NameServersUnreachable: No server answered.
        NotOnAllServers: Some servers refused or did not answer.
        UnexpectedAnswer: The list has only one server, and it refused.
    """
    header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
    return await _change(servers, RequestCode.DELETE_TOPIC_IN_NAMESRV, header.to_ext_fields(), timeout_ms)


async def require_topic(
    servers: NameServers, topic: str, cluster: str | None = None, timeout_ms: int = ADMIN_TIMEOUT_MS
) -> None:
    """Check that a name server knows a topic. A server that does not answer, or does not list topics, may know it.

    Args:
        cluster: Consider only brokers of this cluster; None for all.

    Raises:
        QueryNotFound: No name server knows the topic.
    """
    code, fields = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}
    if cluster is not None:
        code, fields = (
            RequestCode.GET_TOPICS_BY_CLUSTER,
            GetTopicsByClusterRequestHeader(cluster=cluster).to_ext_fields(),
        )

    def is_known(response: RemotingCommand) -> bool:
        expect_success(code, response)
        return topic in decode_topic_list(code, response.body)

    outcomes = await servers.invoke_each(request(code, fields), is_known, timeout_ms)
    where = "" if cluster is None else f" in cluster {cluster}"
    _refuse_unknown(outcomes, f"no name server knows a topic {topic}{where}")


async def delete_known_kv(
    servers: NameServers, namespace: str, key: str, timeout_ms: int = ADMIN_TIMEOUT_MS
) -> tuple[str, ...]:
    """Delete an entry of the key-value table if a name server has it. A server that does not answer may have it.

    Returns:
        The addresses of all servers.

    Raises:
        QueryNotFound: No name server has the entry.
        NameServersUnreachable, NotOnAllServers, UnexpectedAnswer: As for ``delete_kv``.
    """
    code = RequestCode.GET_KV_CONFIG

    def is_known(response: RemotingCommand) -> bool:
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return False
        expect_success(code, response)
        return True

    fields = GetKVConfigRequestHeader(namespace=namespace, key=key).to_ext_fields()
    outcomes = await servers.invoke_each(request(code, fields), is_known, timeout_ms)
    _refuse_unknown(outcomes, f"no name server has an entry {key} in namespace {namespace}")
    return await delete_kv(servers, namespace, key, timeout_ms)


def _refuse_unknown(outcomes: Sequence[Outcome[bool]], reason: str) -> None:
    if all(outcome.value is False for outcome in outcomes):
        raise QueryNotFound(f"{reason}: nothing was changed")


async def wipe_write_perm(
    servers: NameServers, broker_name: str, timeout_ms: int = ADMIN_TIMEOUT_MS
) -> list[Outcome[int]]:
    """Remove a broker's write permission from all its topics, until the broker changes one of them.

    Returns:
        The outcome at every server; its value is the number of the broker's topics there.
    """
    ext_fields = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name).to_ext_fields()

    def count(ext_fields: Mapping[str, str] | None) -> int | None:
        return WipeWritePermOfBrokerResponseHeader.from_ext_fields(ext_fields).wipe_topic_count

    return await _change_perm(servers, RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext_fields, count, timeout_ms)


async def add_write_perm(
    servers: NameServers, broker_name: str, timeout_ms: int = ADMIN_TIMEOUT_MS
) -> list[Outcome[int]]:
    """Restore a broker's write permission.

    Returns:
        The outcome at every server; its value is the number of the broker's topics there.
    """
    ext_fields = AddWritePermOfBrokerRequestHeader(broker_name=broker_name).to_ext_fields()

    def count(ext_fields: Mapping[str, str] | None) -> int | None:
        return AddWritePermOfBrokerResponseHeader.from_ext_fields(ext_fields).add_topic_count

    return await _change_perm(servers, RequestCode.ADD_WRITE_PERM_OF_BROKER, ext_fields, count, timeout_ms)


async def set_queues(servers: NameServers, topic: str, queues: QueueData, timeout_ms: int = ADMIN_TIMEOUT_MS) -> None:
    """Set the queues and the permission of a topic at one broker, until the broker changes its topics.

    Args:
        queues: The broker's name, the numbers of queues, and the permission.

    Raises:
        NameServersUnreachable: No server answered.
        NotOnAllServers: Some servers refused or did not answer.
        UnexpectedAnswer: The list has only one server, and it refused.
    """
    entry = {
        "brokerName": queues.broker_name,
        "readQueueNums": queues.read_queue_nums,
        "writeQueueNums": queues.write_queue_nums,
        "perm": queues.perm,
        "topicSysFlag": queues.topic_sys_flag,
    }
    header = RegisterTopicRequestHeader(topic=topic)
    body = orjson.dumps({"queueDatas": [entry], "brokerDatas": []})
    await _change(servers, RequestCode.REGISTER_TOPIC_IN_NAMESRV, header.to_ext_fields(), timeout_ms, body)


async def name_server_config(servers: NameServers, timeout_ms: int = ADMIN_TIMEOUT_MS) -> list[Outcome[dict[str, str]]]:
    """Return the outcome at every server; its value is the configuration, setting → value."""
    code = RequestCode.GET_NAMESRV_CONFIG

    def decode(response: RemotingCommand) -> dict[str, str]:
        expect_success(code, response)
        if response.body is None:
            raise UnexpectedAnswer(code, 0, "no body")
        # The server does not escape the values as Java's properties do.
        pairs = (line.partition("=") for line in response.body.decode("utf-8", "replace").split("\n") if line)
        return {key: value for key, _, value in pairs}

    return await servers.invoke_each(request(code), decode, timeout_ms)


async def update_name_server_config(
    servers: NameServers, values: Mapping[str, str], timeout_ms: int = ADMIN_TIMEOUT_MS
) -> tuple[str, ...]:
    """Change settings at run time; RocketMQ's servers ignore unknown keys.

    Returns:
        The addresses of all servers.

    Raises:
        NameServersUnreachable: No server answered.
        NotOnAllServers: Some servers refused or did not answer.
        UnexpectedAnswer: The list has only one server, and it refused.
    """
    return await _change(servers, RequestCode.UPDATE_NAMESRV_CONFIG, None, timeout_ms, java_properties.dumps(values))


@dataclass(frozen=True, slots=True)
class Imported:
    """Numbers of entries of an import at one server: added, changed, and already there with the same value."""

    added: int
    changed: int
    unchanged: int


async def import_kv(
    servers: NameServers, tables: Mapping[str, Mapping[str, str]], timeout_ms: int = ADMIN_TIMEOUT_MS
) -> list[Outcome[Imported]]:
    """Write to every server those entries that it lacks or has with another value; its other entries stay.

    Args:
        tables: The entries: namespace → key → value.

    Returns:
        The outcome at every server, in the order of the list.
    """
    return [await _import_at(servers, addr, tables, timeout_ms) for addr in servers.addrs]


async def _import_at(
    servers: NameServers, addr: str, tables: Mapping[str, Mapping[str, str]], timeout_ms: int
) -> Outcome[Imported]:
    added = changed = unchanged = 0
    try:
        for namespace, entries in tables.items():
            try:
                response = await servers.invoke_at(addr, kv_table_request(namespace), timeout_ms)
                there = decode_kv_table(namespace, response)
            except QueryNotFound:
                there = {}
            for key, value in entries.items():
                if there.get(key) == value:
                    unchanged += 1
                    continue
                header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
                put = request(RequestCode.PUT_KV_CONFIG, header.to_ext_fields())
                expect_success(RequestCode.PUT_KV_CONFIG, await servers.invoke_at(addr, put, timeout_ms))
                added, changed = (added, changed + 1) if key in there else (added + 1, changed)
    except NamesrvStreamError as error:
        return Outcome(addr, error=error)
    return Outcome(addr, value=Imported(added, changed, unchanged))


async def _change(
    servers: NameServers,
    code: RequestCode,
    ext_fields: dict[str, str] | None,
    timeout_ms: int,
    body: bytes | None = None,
) -> tuple[str, ...]:
    def decode(response: RemotingCommand) -> bool:
        expect_success(code, response)
        return True

    outcomes = await servers.invoke_each(request(code, ext_fields, body), decode, timeout_ms)
    check(outcomes)
    return tuple(outcome.addr for outcome in outcomes)


def check(outcomes: Sequence[Outcome[T]]) -> None:
    """Raise an error unless all outcomes are successful.

    Raises:
        NameServersUnreachable: No server answered.
        NotOnAllServers: Some servers refused or did not answer.
        UnexpectedAnswer: The list has only one server, and it refused.
    """
    errors = {outcome.addr: outcome.error for outcome in outcomes if outcome.error is not None}
    if not errors:
        return
    reasons = {addr: _reason(error) for addr, error in errors.items()}
    if len(errors) == len(outcomes) and all(isinstance(e, ConnectionLost | RequestTimedOut) for e in errors.values()):
        raise NameServersUnreachable(reasons)
    if len(outcomes) == 1:
        raise errors[outcomes[0].addr]
    raise NotOnAllServers([outcome.addr for outcome in outcomes if outcome.error is None], reasons)


def _reason(error: NamesrvStreamError) -> str:
    return error.reason if isinstance(error, ConnectionLost | RequestTimedOut) else str(error)


async def _change_perm(
    servers: NameServers,
    code: RequestCode,
    ext_fields: dict[str, str],
    count: Callable[[Mapping[str, str] | None], int | None],
    timeout_ms: int,
) -> list[Outcome[int]]:
    def decode(response: RemotingCommand) -> int:
        expect_success(code, response)
        topics = count(response.ext_fields)
        if topics is None:
            raise UnexpectedAnswer(code, 0, "no topic count")
        return topics

    return await servers.invoke_each(request(code, ext_fields), decode, timeout_ms)
