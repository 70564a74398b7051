"""An operator takes the write permission of a broker's topics away before a maintenance, and gives it back.

Both hold until the broker's own registration says otherwise. Source: rocketmq 5.3.3, DefaultRequestProcessor and
RouteInfoManager.operateWritePermOfBrokerByLock; nameserver.md §7.7.
"""

from collections.abc import Mapping

from namesrv_stream.processor.name_server import Accepted, Answer, Call, NameServer
from namesrv_stream.remoting.codes import ResponseCode
from namesrv_stream.remoting.command import response_to
from namesrv_stream.remoting.headers import AddWritePermOfBrokerRequestHeader, WipeWritePermOfBrokerRequestHeader
from namesrv_stream.remoting.response_headers import (
    AddWritePermOfBrokerResponseHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from namesrv_stream.route.events import WritePermChanged


def wipe_write_perm_of_broker(server: NameServer, call: Call) -> Answer:
    """205: no topic of the broker is writable. Answers how many topics it has, 0 for an unknown broker."""
    name = WipeWritePermOfBrokerRequestHeader.from_ext_fields(call.request.ext_fields).broker_name or ""
    count = len(server.table.group(name).topics)
    fields = WipeWritePermOfBrokerResponseHeader(count).to_ext_fields()
    return _changed(call, name, count, fields, writable=False)


def add_write_perm_of_broker(server: NameServer, call: Call) -> Answer:
    """327: every topic of the broker has read and write permission and no other. Answers as 205."""
    name = AddWritePermOfBrokerRequestHeader.from_ext_fields(call.request.ext_fields).broker_name or ""
    count = len(server.table.group(name).topics)
    fields = AddWritePermOfBrokerResponseHeader(count).to_ext_fields()
    return _changed(call, name, count, fields, writable=True)


def _changed(call: Call, broker_name: str, count: int, fields: Mapping[str, str], *, writable: bool) -> Answer:
    response = response_to(call.request, ResponseCode.SUCCESS, ext_fields=fields)
    if not count:
        return Answer(response)
    event = WritePermChanged(call.origin, broker_name, writable)
    return Answer(response, (Accepted(event, event),), is_logged_first=True)
