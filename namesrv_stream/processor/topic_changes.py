"""Processors of requests that change topics without a registration: 205, 216, 327 from an operator, 217 from a broker.

Source: rocketmq 5.3.3, DefaultRequestProcessor and RouteInfoManager.deleteTopic, registerTopic,
operateWritePermOfBrokerByLock.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from namesrv_stream.errors import BodyDecodeError, RequestRefused
from namesrv_stream.processor.authorisation import who
from namesrv_stream.processor.body_fields import as_int, as_object, as_text, is_too_long, require_short
from namesrv_stream.processor.name_server import Answer, Call, NameServer, operator_change
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import RequestCode, response_to
from namesrv_stream.remoting.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from namesrv_stream.route.events import TopicDeleted, TopicRegistered, WritePermChanged
from namesrv_stream.route.model import QueueData, shared_queue_data

#: Differs from RocketMQ: brokers send the queues of one name. Each name becomes an event, which changes its group.
_MAX_QUEUE_DATAS: Final = 100
_MAX_BODY_BYTES: Final = 256 * 1024
_MAX_LENIENT_BYTES: Final = 4 * 1024
_NUMBERS: Final = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")


def delete_topic_in_namesrv(server: NameServer, call: Call) -> Answer:
    """Answer 216, always with SUCCESS: delete a topic in the named cluster, or in all."""
    header = DeleteTopicFromNamesrvRequestHeader.from_ext_fields(call.request.ext_fields)
    response = response_to(call.request)
    if header.topic is None or is_too_long(header.topic):
        return Answer(response)
    source = who(server.access, call)
    return operator_change(response, TopicDeleted(call.origin, header.topic, header.cluster_name or None, source))


def wipe_write_perm_of_broker(server: NameServer, call: Call) -> Answer:
    """Answer 205: remove the write permission from all topics of a broker, until it registers other permissions.

    The answer contains the number of its topics, 0 for an unknown broker.
    """
    name = WipeWritePermOfBrokerRequestHeader.from_ext_fields(call.request.ext_fields).broker_name or ""
    return _set_write_perm(server, call, name, WipeWritePermOfBrokerResponseHeader)


def add_write_perm_of_broker(server: NameServer, call: Call) -> Answer:
    """Answer 327: give every topic of the broker exactly read and write permission.

    Duration and answer are those of ``wipe_write_perm_of_broker``.
    """
    name = AddWritePermOfBrokerRequestHeader.from_ext_fields(call.request.ext_fields).broker_name or ""
    return _set_write_perm(server, call, name, AddWritePermOfBrokerResponseHeader)


_ChangedHeader = type[AddWritePermOfBrokerResponseHeader | WipeWritePermOfBrokerResponseHeader]


def _set_write_perm(server: NameServer, call: Call, broker_name: str, header: _ChangedHeader) -> Answer:
    count = len(server.table.group(broker_name).topics)
    response = response_to(call.request, ext_fields=header(count).to_ext_fields())
    writable = header is AddWritePermOfBrokerResponseHeader
    events = [WritePermChanged(call.origin, broker_name, writable, who(server.access, call))] if count else []
    return operator_change(response, *events)


def register_topic_in_namesrv(server: NameServer, call: Call) -> Answer:
    """Answer 217, with SUCCESS even if brokers are unknown: the brokers in the body's queueDatas offer the topic.

    Raises:
        RequestRefused: The topic is missing (Java stores it under null, where no peer can query it), or its name is
            longer than any valid one (the log would contain the name once for every broker).
        BodyDecodeError: The body is not a TopicRouteData, or an entry of its queueDatas is invalid.
    """
    topic = RegisterTopicRequestHeader.from_ext_fields(call.request.ext_fields).topic
    if topic is None:
        raise RequestRefused("topic is missing")
    require_short("a topic", topic)
    if call.must_wait:
        return Answer(response_to(call.request), is_postponed=True)
    entries = list(_queue_datas(call.request.body))
    # As in Java, the entries before the first one of an unknown broker count; for a new topic, all or none.
    known = list(takewhile(lambda entry: server.table.group(entry[0]).is_registered, entries))
    if len(known) < len(entries) and next(server.table.queue_data_of(topic), None) is None:
        known = []
    source = who(server.access, call)
    events = [TopicRegistered(call.origin, name, topic, queues, source) for name, queues in dict(known).items()]
    return operator_change(response_to(call.request), *events)


def _queue_datas(body: bytes | None) -> Iterator[tuple[str, QueueData]]:
    """Yield the broker name and queues of every entry; absent numbers are 0, as in Java's QueueData."""
    if not body:
        return
    try:
        if len(body) > _MAX_BODY_BYTES:
            raise ValueError(f"{len(body)} bytes exceed {_MAX_BODY_BYTES}")
        entries = as_object(fastjson.loads(body, _MAX_LENIENT_BYTES), "TopicRouteData").get("queueDatas")
        if isinstance(entries, dict):
            entries = [entries]  # as fastjson does
        if not isinstance(entries, list | None):
            raise ValueError("queueDatas is not a list")
        entries = entries or []
        if len(entries) > _MAX_QUEUE_DATAS:
            raise ValueError(f"{len(entries)} queueDatas exceed {_MAX_QUEUE_DATAS}")
        for entry in entries:
            fields = as_object(entry, "an entry of queueDatas")
            numbers = (as_int(fields.get(key), 0) for key in _NUMBERS)
            # A missing name becomes "", which is never the name of a registered broker.
            yield as_text(fields.get("brokerName"), "", "brokerName"), shared_queue_data(*numbers)
    except (ValueError, TypeError, RecursionError) as error:
        raise BodyDecodeError(RequestCode.REGISTER_TOPIC_IN_NAMESRV, str(error)) from error
