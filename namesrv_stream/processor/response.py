"""How an error becomes a response."""

from collections.abc import Mapping

from namesrv_stream.errors import (
    BodyDecodeError,
    NamesrvStreamError,
    NoPermission,
    QueryNotFound,
    RequestError,
    RequestRefused,
    SystemBusy,
    TopicNotExist,
)
from namesrv_stream.remoting.codes import RequestCode, ResponseCode
from namesrv_stream.remoting.command import RemotingCommand, response_to

RESPONSE_CODE_OF: Mapping[type[NamesrvStreamError], ResponseCode] = {
    TopicNotExist: ResponseCode.TOPIC_NOT_EXIST,
    RequestRefused: ResponseCode.SYSTEM_ERROR,
    BodyDecodeError: ResponseCode.SYSTEM_ERROR,
    QueryNotFound: ResponseCode.QUERY_NOT_FOUND,
    NoPermission: ResponseCode.NO_PERMISSION,
    SystemBusy: ResponseCode.SYSTEM_BUSY,
}

#: Source: rocketmq 5.3.3, FAQUrl.suggestTodo(FAQUrl.APPLY_TOPIC_URL), as seen on the wire.
_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


#: Requests whose refusal has Java's response header in it, with no field set.
_WITH_HEADER = frozenset({RequestCode.GET_KV_CONFIG, RequestCode.REGISTER_BROKER})


def error_response(request: RemotingCommand, error: NamesrvStreamError) -> RemotingCommand:
    """The answer to a request that failed with ``error``."""
    remark = str(error)
    if isinstance(error, TopicNotExist):
        remark = f"No topic route info in name server for the topic: {error.topic}{_FAQ}"
    code = RESPONSE_CODE_OF.get(type(error), ResponseCode.SYSTEM_ERROR)
    has_header = request.code in _WITH_HEADER and isinstance(error, RequestError)
    return response_to(request, code, remark, ext_fields={} if has_header else None)
