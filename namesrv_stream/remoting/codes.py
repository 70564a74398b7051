"""Numbers of the remoting protocol: codes, flags and versions, as RocketMQ 5.3.3 uses them.

On the wire, all of them are plain integers, and may have values that are unknown here. A ``RemotingCommand`` therefore
carries ints, which compare equal to these enums. The exceptions are language and serialize type, which Java decodes to
enums.
"""

from enum import IntEnum
from typing import Final

RESPONSE_FLAG: Final = 1  # RemotingCommand.RPC_TYPE: bit 0 of flag
ONEWAY_FLAG: Final = 2  # RemotingCommand.RPC_ONEWAY: bit 1 of flag


class RequestCode(IntEnum):
    """Requests that a NameServer answers, and the single one that it sends.

    Source: rocketmq 5.3.3, RequestCode and namesrv's DefaultRequestProcessor, ClientRequestProcessor.
    """

    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    QUERY_DATA_VERSION = 322
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_BROKER_MEMBER_GROUP = 901
    BROKER_HEARTBEAT = 904
    NOTIFY_MIN_BROKER_ID_CHANGE = 905  # oneway, from the NameServer to brokers


class ResponseCode(IntEnum):
    """Response codes that a NameServer uses.

    Source: rocketmq 5.3.3, RemotingSysResponseCode and ResponseCode.
    """

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    QUERY_NOT_FOUND = 22
    GO_AWAY = 1500


class LanguageCode(IntEnum):
    """Languages in which a peer may declare to be written.

    Source: rocketmq 5.3.3, LanguageCode. 0 to 11 exist in every release since 4.4.0.
    """

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class SerializeType(IntEnum):
    """Encoding of a frame's header; the frame's type byte."""

    JSON = 0
    ROCKETMQ = 1


V3_0_11: Final = 37  # since then, the body of REGISTER_BROKER is a RegisterBrokerBody
V4_9_4: Final = 401  # since then, routes are answered in strict JSON
V5_0_0: Final = 413  # since then, compressed registrations carry static topics
V5_3_1: Final = 475  # later releases understand GO_AWAY
MQ_VERSION: Final = 479  # V5_3_3, the release whose behaviour this server has
HIGHER_VERSION: Final = 612  # the last ordinal; Java reduces higher ones to it

_FIRST_OF_MAJOR: Final = {4: 213, 5: 413}


def version_of(major: int, minor: int, patch: int) -> int:
    """Return the ordinal on the wire of the final release ``major.minor.patch``.

    Each minor release has ten patches. Each patch has a snapshot, whose ordinal is lower by one.

    Raises:
        ValueError: The major release is not 4 or 5, or a part is not a single digit.

    Source: rocketmq 5.3.3, MQVersion.Version.
    """
    if major not in _FIRST_OF_MAJOR or not 0 <= minor <= 9 or not 0 <= patch <= 9:
        raise ValueError(f"no ordinal is known for RocketMQ {major}.{minor}.{patch}")
    return _FIRST_OF_MAJOR[major] + 20 * minor + 2 * patch
