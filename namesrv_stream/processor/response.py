"""How an error becomes a response."""

from collections.abc import Mapping

from namesrv_stream.errors import BodyDecodeError, NamesrvStreamError, RequestRefused, TopicNotExist
from namesrv_stream.remoting.codes import ResponseCode
from namesrv_stream.remoting.command import RemotingCommand, response_to

RESPONSE_CODE_OF: Mapping[type[NamesrvStreamError], ResponseCode] = {
    TopicNotExist: ResponseCode.TOPIC_NOT_EXIST,
    RequestRefused: ResponseCode.SYSTEM_ERROR,
    BodyDecodeError: ResponseCode.SYSTEM_ERROR,
}

#: Source: rocketmq 5.3.3, FAQUrl.suggestTodo(FAQUrl.APPLY_TOPIC_URL), as seen on the wire.
_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def error_response(request: RemotingCommand, error: NamesrvStreamError) -> RemotingCommand:
    """The answer to a request that failed with ``error``."""
    remark = str(error)
    if isinstance(error, TopicNotExist):
        remark = f"No topic route info in name server for the topic: {error.topic}{_FAQ}"
    return response_to(request, RESPONSE_CODE_OF.get(type(error), ResponseCode.SYSTEM_ERROR), remark)
