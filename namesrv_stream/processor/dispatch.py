"""Maps request codes to processors, and errors to responses.

It does not contain the codes of the controller that RocketMQ can start inside its NameServer (1001 to 1018). That
controller listens on a port of its own and has its own election protocol.
"""

from collections.abc import Mapping
from typing import Final

from namesrv_stream.errors import (
    NamesrvStreamError,
    NoPermission,
    QueryNotFound,
    RequestError,
    SystemBusy,
    TopicNotExist,
)
from namesrv_stream.processor import broker, client, configuration, topic_changes
from namesrv_stream.processor.authorisation import (
    ADMIN_CODES,
    BROKER_CODES,
    authorise,
    authorise_broker,
    remember_refusal,
)
from namesrv_stream.processor.name_server import Answer, Call, NameServer, Processors
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, response_to

PROCESSORS: Processors = {
    RequestCode.PUT_KV_CONFIG: configuration.put_kv_config,
    RequestCode.GET_KV_CONFIG: configuration.get_kv_config,
    RequestCode.DELETE_KV_CONFIG: configuration.delete_kv_config,
    RequestCode.REGISTER_BROKER: broker.register_broker,
    RequestCode.UNREGISTER_BROKER: broker.unregister_broker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: client.get_route_info_by_topic,
    RequestCode.GET_BROKER_CLUSTER_INFO: client.get_broker_cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: topic_changes.wipe_write_perm_of_broker,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: client.get_all_topic_list,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: topic_changes.delete_topic_in_namesrv,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: topic_changes.register_topic_in_namesrv,
    RequestCode.GET_KVLIST_BY_NAMESPACE: configuration.get_kv_list_by_namespace,
    RequestCode.GET_TOPICS_BY_CLUSTER: client.get_topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: client.get_system_topic_list,
    RequestCode.GET_UNIT_TOPIC_LIST: client.get_unit_topic_list,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: client.get_has_unit_sub_topic_list,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: client.get_has_unit_sub_un_unit_topic_list,
    RequestCode.UPDATE_NAMESRV_CONFIG: configuration.update_namesrv_config,
    RequestCode.GET_NAMESRV_CONFIG: configuration.get_namesrv_config,
    RequestCode.QUERY_DATA_VERSION: broker.query_data_version,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: topic_changes.add_write_perm_of_broker,
    RequestCode.GET_BROKER_MEMBER_GROUP: broker.get_broker_member_group,
    RequestCode.BROKER_HEARTBEAT: broker.broker_heartbeat,
}

#: All other errors of this package become SYSTEM_ERROR.
_RESPONSE_CODE_OF: Final[Mapping[type[NamesrvStreamError], ResponseCode]] = {
    TopicNotExist: ResponseCode.TOPIC_NOT_EXIST,
    QueryNotFound: ResponseCode.QUERY_NOT_FOUND,
    NoPermission: ResponseCode.NO_PERMISSION,
    SystemBusy: ResponseCode.SYSTEM_BUSY,
}
#: Source: rocketmq 5.3.3, FAQUrl.suggestTodo(FAQUrl.APPLY_TOPIC_URL), as seen on the wire.
_FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
#: Requests whose error response contains Java's response header without any field set.
_WITH_HEADER: Final = frozenset({RequestCode.GET_KV_CONFIG, RequestCode.REGISTER_BROKER})

_PROCESSOR_OF_NUMBER = {int(code): processor for code, processor in PROCESSORS.items()}


def process(server: NameServer, call: Call) -> Answer:
    """Answer one request; a ``NamesrvStreamError`` becomes its response. The caller applies the events to the view."""
    code = call.request.code
    processor = _PROCESSOR_OF_NUMBER.get(code)
    if processor is None:
        # The leading blank is Java's. Source: rocketmq 5.3.3, NettyRemotingAbstract.processRequestCommand.
        remark = f" request type {code} not supported"
        return Answer(response_to(call.request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
    try:
        if code in ADMIN_CODES:
            authorise(server.access, call)
        elif code in BROKER_CODES:
            authorise_broker(server.access, call)
        return processor(server, call)
    except NamesrvStreamError as error:
        refusal = error.for_log if isinstance(error, NoPermission) else ""
        if refusal and code in BROKER_CODES:
            remember_refusal(server, call, str(error))  # what the peer learns, not what is only for the log
        return Answer(error_response(call.request, error), refusal=refusal)


def error_response(request: RemotingCommand, error: NamesrvStreamError) -> RemotingCommand:
    """Return the response to a request that failed with ``error``."""
    remark = str(error)
    if isinstance(error, TopicNotExist):
        remark = f"No topic route info in name server for the topic: {error.topic}{_FAQ}"
    code = _RESPONSE_CODE_OF.get(type(error), ResponseCode.SYSTEM_ERROR)
    has_header = request.code in _WITH_HEADER and isinstance(error, RequestError)
    return response_to(request, code, remark, ext_fields={} if has_header else None)
