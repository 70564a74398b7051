"""The served request codes are those of RocketMQ's NameServer, and no others (ADR 0057)."""

from typing import Final

from namesrv_stream.processor.authorisation import ADMIN_CODES, BROKER_CODES
from namesrv_stream.processor.dispatch import PROCESSORS
from namesrv_stream.remoting.command import RequestCode

#: Source: rocketmq 5.3.3, DefaultRequestProcessor.processRequest, and ClientRequestProcessor for 105.
_SERVED_BY_JAVA: Final = {
    "PUT_KV_CONFIG": 100,
    "GET_KV_CONFIG": 101,
    "DELETE_KV_CONFIG": 102,
    "REGISTER_BROKER": 103,
    "UNREGISTER_BROKER": 104,
    "GET_ROUTEINFO_BY_TOPIC": 105,
    "GET_BROKER_CLUSTER_INFO": 106,
    "WIPE_WRITE_PERM_OF_BROKER": 205,
    "GET_ALL_TOPIC_LIST_FROM_NAMESERVER": 206,
    "DELETE_TOPIC_IN_NAMESRV": 216,
    "REGISTER_TOPIC_IN_NAMESRV": 217,
    "GET_KVLIST_BY_NAMESPACE": 219,
    "GET_TOPICS_BY_CLUSTER": 224,
    "GET_SYSTEM_TOPIC_LIST_FROM_NS": 304,
    "GET_UNIT_TOPIC_LIST": 311,
    "GET_HAS_UNIT_SUB_TOPIC_LIST": 312,
    "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST": 313,
    "UPDATE_NAMESRV_CONFIG": 318,
    "GET_NAMESRV_CONFIG": 319,
    "QUERY_DATA_VERSION": 322,
    "ADD_WRITE_PERM_OF_BROKER": 327,
    "GET_BROKER_MEMBER_GROUP": 901,
    "BROKER_HEARTBEAT": 904,
}
#: Source: rocketmq 5.3.3, RouteInfoManager.notifyMinBrokerIdChanged.
_SENT_BY_JAVA: Final = {"NOTIFY_MIN_BROKER_ID_CHANGE": 905}


def test_request_codes_are_those_of_java() -> None:
    ours, javas = {code.name: code.value for code in RequestCode}, _SERVED_BY_JAVA | _SENT_BY_JAVA
    assert ours.items() ^ javas.items() == set(), "in RequestCode or in _SERVED_BY_JAVA, but not in both"


def test_every_request_that_java_serves_has_a_processor() -> None:
    served = {code.name for code in PROCESSORS}
    assert served ^ _SERVED_BY_JAVA.keys() == set(), "in PROCESSORS or in _SERVED_BY_JAVA, but not in both"


def test_only_served_requests_are_authorised() -> None:
    unserved = (ADMIN_CODES | BROKER_CODES) - PROCESSORS.keys()
    assert unserved == set(), "in ADMIN_CODES or BROKER_CODES, but not in PROCESSORS"
