"""Processors of the server's configuration, with RocketMQ's own keys, and of the key-value (KV) table.

Only the options of ``OPTION_OF`` and deleteTopicWithBrokerRegistration can change at run time. A changed option stays
in force until the server restarts. The fold depends on deleteTopicWithBrokerRegistration, so a change of it goes
through the log. No path is ever taken from a request, and nothing is written to disk or executed (CVE-2023-33246,
CVE-2023-37582).

Operators store values for brokers and clients in the KV table, for example the order of queues.

Source: rocketmq 5.3.3, DefaultRequestProcessor, Configuration, KVConfigManager, NamesrvConfig, NettyServerConfig.
"""

import re
from collections.abc import Mapping
from typing import Final

from namesrv_stream.errors import NoPermission, QueryNotFound, RequestRefused
from namesrv_stream.processor.body_fields import is_too_long, require_short
from namesrv_stream.processor.long_bodies import kv_table
from namesrv_stream.processor.name_server import Answer, Call, LongBody, NameServer, operator_change
from namesrv_stream.remoting import java_properties
from namesrv_stream.remoting.command import response_to
from namesrv_stream.remoting.headers import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from namesrv_stream.route.address_views import VIEWS_NAMESPACE, parse_view
from namesrv_stream.route.events import KvDeleted, KvPut, SettingsChanged
from namesrv_stream.route.table import HELD_NAMESPACE, held_entries

#: RocketMQ's default values of the keys that have no effect here. This server has no files of RocketMQ, so paths are
#: empty.
ROCKETMQ_DEFAULTS: Final[Mapping[str, str]] = {
    "bindAddress": "0.0.0.0",
    "clientRequestThreadPoolNums": "8",
    "clientRequestThreadPoolQueueCapacity": "50000",
    "clusterTest": "false",
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    "configStorePath": "",
    "defaultThreadPoolNums": "16",
    "defaultThreadPoolQueueCapacity": "10000",
    "enableControllerInNamesrv": "false",
    "enableShutdownGracefully": "false",
    "kvConfigPath": "",
    "listenPort": "9876",
    "productEnvName": "center",
    "rocketmqHome": "",
    "scanNotActiveBrokerInterval": "5000",
    "serverAsyncSemaphoreValue": "64",
    "serverCallbackExecutorThreads": "0",
    "serverChannelMaxIdleTimeSeconds": "120",
    "serverNettyWorkerGroupEnable": "true",
    "serverOnewaySemaphoreValue": "256",
    "serverPooledByteBufAllocatorEnable": "true",
    "serverSelectorThreads": "3",
    "serverSocketBacklog": "1024",
    "serverSocketRcvBufSize": "0",
    "serverSocketSndBufSize": "0",
    "serverWorkerThreads": "8",
    "shutdownWaitTimeSeconds": "30",
    "unRegisterBrokerQueueCapacity": "3000",
    "useEpollNativeSelector": "false",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
}

#: RocketMQ's key → field of ``Options``.
OPTION_OF: Final[Mapping[str, str]] = {
    "enableAllTopicList": "enable_all_topic_list",
    "enableTopicList": "enable_topic_list",
    "needWaitForService": "need_wait_for_service",
    "notifyMinBrokerIdChanged": "notify_min_broker_id_changed",
    "orderMessageEnable": "order_message_enable",
    "returnOrderTopicConfigToBroker": "return_order_topic_config_to_broker",
    "supportActingMaster": "support_acting_master",
    "waitSecondsForService": "wait_seconds_for_service",
}
#: The only key that is a setting of the fold, and the name of that setting.
_DELETE_TOPIC: Final = "deleteTopicWithBrokerRegistration"
_DELETE_TOPIC_SETTING: Final = "delete_topic_with_broker_registration"

# Source: rocketmq 5.3.3, DefaultRequestProcessor's constructor; the value of configBlackList adds to these.
_BLACK_LIST: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})

_DIGITS: Final = re.compile(r"\+?[0-9]{1,9}")


def effective_config(server: NameServer) -> dict[str, str]:
    """Return every key of RocketMQ's name server, sorted, with its current, configured or default value."""
    now = {key: _text(getattr(server.options, name)) for key, name in OPTION_OF.items()}
    drops = server.drops_absent_topics
    if drops is not None or _DELETE_TOPIC not in server.config:
        now[_DELETE_TOPIC] = _text(bool(drops))
    return dict(sorted({**ROCKETMQ_DEFAULTS, **server.config, **now}.items()))


def get_namesrv_config(server: NameServer, call: Call) -> Answer:
    """Answer 319 with one line ``key=value`` for every key, unescaped as in Java."""
    text = "".join(f"{key}={value}\n" for key, value in effective_config(server).items())
    return Answer(response_to(call.request, body=text.encode()))


def update_namesrv_config(server: NameServer, call: Call) -> Answer:
    """Answer 318: change all named keys, or none.

    The only exception: if the log does not confirm the event, the answer is SYSTEM_BUSY. Then
    deleteTopicWithBrokerRegistration may have changed, but the options have not.

    Differs from RocketMQ: the request is off unless configured, and keys that are not safe and invalid values are
    refused. Java accepts any key that it knows, and ignores the others silently.

    Raises:
        NoPermission: The request is off, or a key may not be changed.
        RequestRefused: The body is not a properties text, or a value is invalid for its key.
    """
    if not server.access.enable_config_update:
        raise NoPermission(
            "UPDATE_NAMESRV_CONFIG is off: admin.enable_config_update=true in the configuration allows it"
        )
    response = response_to(call.request)
    try:
        wanted = java_properties.loads(call.request.body or b"")
    except ValueError as error:
        raise RequestRefused("string2Properties error") from error
    if not wanted.keys().isdisjoint(_BLACK_LIST.union(effective_config(server)["configBlackList"].split(";"))):
        raise NoPermission("Can not update config in black list.")
    others = sorted(wanted.keys() - OPTION_OF.keys() - {_DELETE_TOPIC})
    if others:
        raise NoPermission(f"Can not update config at run time: {', '.join(others)[:1000]}")
    values = {key: _value(key, text) for key, text in wanted.items()}
    changed = {OPTION_OF[key]: value for key, value in values.items() if key in OPTION_OF}
    if _DELETE_TOPIC not in values:
        return Answer(response, options=changed)
    source = f"updateNamesrvConfig from {call.peer.host or 'an unknown address'}"
    event = SettingsChanged(call.origin, source, ((_DELETE_TOPIC_SETTING, values[_DELETE_TOPIC]),))
    return operator_change(response, event, options=changed)


def _value(key: str, text: str) -> int | bool:
    value = text.strip()
    if key == "waitSecondsForService":
        if _DIGITS.fullmatch(value):
            return int(value)
        expected = "a whole number of at most nine digits"
    elif value.lower() in ("true", "false"):
        return value.lower() == "true"
    else:
        expected = "true or false"
    raise RequestRefused(f"{key}: {text[:100]!r} is not {expected}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def put_kv_config(server: NameServer, call: Call) -> Answer:
    """Answer 100: store a KV entry. Namespace, key and value may be blank.

    Differs from RocketMQ: a missing value is refused. Java stores a null that no query ever returns. In the namespace
    of address views, an invalid view is refused (ADR 0059).

    Raises:
        RequestRefused: A field is missing, or an address view is invalid.
    """
    header = PutKVConfigRequestHeader.from_ext_fields(call.request.ext_fields)
    if header.namespace is None or header.key is None:
        raise RequestRefused("namespace or key is null")
    if header.value is None:
        raise RequestRefused("value is null")
    require_short("a namespace", header.namespace)
    require_short("a key", header.key)
    if header.namespace == VIEWS_NAMESPACE:
        _check_view(server, header.key, header.value)
    return operator_change(response_to(call.request), KvPut(call.origin, header.namespace, header.key, header.value))


def _check_view(server: NameServer, name: str, document: str) -> None:
    try:
        conflict = server.views.conflict(parse_view(name, document))
    except ValueError as error:
        raise RequestRefused(str(error)) from None
    if conflict is not None:
        raise RequestRefused(conflict)


def get_kv_config(server: NameServer, call: Call) -> Answer:
    """Answer 101 with the value of a KV entry.

    Raises:
        QueryNotFound: The entry does not exist.
    """
    header = GetKVConfigRequestHeader.from_ext_fields(call.request.ext_fields)
    value = server.table.kv.get(header.namespace or "", {}).get(header.key or "")
    if value is None or header.namespace is None or header.key is None:
        raise QueryNotFound(f"No config item, Namespace: {_java(header.namespace)} Key: {_java(header.key)}")
    return Answer(response_to(call.request, ext_fields=GetKVConfigResponseHeader(value).to_ext_fields()))


def delete_kv_config(_: NameServer, call: Call) -> Answer:
    """Answer 102, always with SUCCESS: delete a KV entry, if namespace and key are given. The namespace remains."""
    header = DeleteKVConfigRequestHeader.from_ext_fields(call.request.ext_fields)
    response = response_to(call.request)
    if header.namespace is None or header.key is None or is_too_long(header.namespace, header.key):
        return Answer(response)
    return operator_change(response, KvDeleted(call.origin, header.namespace, header.key))


def get_kv_list_by_namespace(server: NameServer, call: Call) -> Answer:
    """Answer 219 with all entries of a namespace.

    The brokers that the mass-expiry guard holds have their own namespace, which exists even if empty.

    Raises:
        QueryNotFound: No value was ever put into the namespace.
    """
    header = GetKVListByNamespaceRequestHeader.from_ext_fields(call.request.ext_fields)
    table, response = server.table, response_to(call.request)
    entries = None if header.namespace is None else table.kv.get(header.namespace)
    if header.namespace == HELD_NAMESPACE and (table.held or entries is None):
        # Held brokers have no version, so each computation is for the requests that arrive until it begins.
        return Answer(response, long=LongBody((219, HELD_NAMESPACE), object(), lambda: kv_table(held_entries(table))))
    if entries is None:
        raise QueryNotFound(f"No config item, Namespace: {_java(header.namespace)}")
    version = (table, table.kv_version)
    return Answer(response, long=LongBody((219, header.namespace), version, lambda: kv_table(list(entries.items()))))


def _java(text: str | None) -> str:
    """Return ``text`` as Java writes it into a remark."""
    return "null" if text is None else text
