"""Processors of the key-value table, in which operators store values for brokers and clients (e.g. order of queues).

Source: rocketmq 5.3.3, DefaultRequestProcessor and KVConfigManager; nameserver.md §5.4.
"""

from namesrv_stream.errors import QueryNotFound, RequestRefused
from namesrv_stream.processor.name_server import Answer, Call, NameServer, operator_change
from namesrv_stream.processor.route_body import encode_kv_table
from namesrv_stream.remoting.command import response_to
from namesrv_stream.remoting.headers import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from namesrv_stream.route.events import KvDeleted, KvPut
from namesrv_stream.route.table import HELD_NAMESPACE, held_entries


def put_kv_config(_: NameServer, call: Call) -> Answer:
    """Answer 100. Blank texts are valid.

    Differs from RocketMQ: a missing value is refused. Java stores a null that no query ever returns.

    Raises:
        RequestRefused: A field is missing.
    """
    header = PutKVConfigRequestHeader.from_ext_fields(call.request.ext_fields)
    if header.namespace is None or header.key is None:
        raise RequestRefused("namespace or key is null")
    if header.value is None:
        raise RequestRefused("value is null")
    event = KvPut(call.origin, header.namespace, header.key, header.value)
    return operator_change(response_to(call.request), event)


def get_kv_config(server: NameServer, call: Call) -> Answer:
    """Answer 101.

    Raises:
        QueryNotFound: The entry does not exist.
    """
    header = GetKVConfigRequestHeader.from_ext_fields(call.request.ext_fields)
    value = server.table.kv.get(header.namespace or "", {}).get(header.key or "")
    if value is None or header.namespace is None or header.key is None:
        raise QueryNotFound(f"No config item, Namespace: {_java(header.namespace)} Key: {_java(header.key)}")
    fields = GetKVConfigResponseHeader(value).to_ext_fields()
    return Answer(response_to(call.request, ext_fields=fields))


def delete_kv_config(_: NameServer, call: Call) -> Answer:
    """Answer 102, always with SUCCESS. An empty namespace remains. Without namespace or key nothing is deleted."""
    header = DeleteKVConfigRequestHeader.from_ext_fields(call.request.ext_fields)
    response = response_to(call.request)
    if header.namespace is None or header.key is None:
        return Answer(response)
    return operator_change(response, KvDeleted(call.origin, header.namespace, header.key))


def get_kv_list_by_namespace(server: NameServer, call: Call) -> Answer:
    """Answer 219. The brokers that the mass-expiry guard holds have their own namespace, which exists even if empty.

    Raises:
        QueryNotFound: No value was ever put into the namespace.
    """
    header = GetKVListByNamespaceRequestHeader.from_ext_fields(call.request.ext_fields)
    entries = None if header.namespace is None else server.table.kv.get(header.namespace)
    if header.namespace == HELD_NAMESPACE and (server.table.held or entries is None):
        entries = held_entries(server.table)
    if entries is None:
        raise QueryNotFound(f"No config item, Namespace: {_java(header.namespace)}")
    return Answer(response_to(call.request, body=encode_kv_table(entries)))


def _java(text: str | None) -> str:
    """Return ``text`` as Java writes it into a remark."""
    return "null" if text is None else text
