"""The remoting protocol: its codes, its commands independent of their encoding, and signatures of requests.

On the wire, codes are plain integers, and may have values that are unknown here. A ``RemotingCommand`` therefore
carries ints, which compare equal to the enums. The exceptions are language and serialize type, which Java decodes to
enums.

Signatures are RocketMQ's ACL 1.0, an HMAC-SHA1 over the custom header's values and the body.
Source: rocketmq 5.3.3, AclClientRPCHook, AclUtils.combineRequestContent, AclSigner.
"""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

RESPONSE_FLAG: Final = 1  # RemotingCommand.RPC_TYPE: bit 0 of flag
ONEWAY_FLAG: Final = 2  # RemotingCommand.RPC_ONEWAY: bit 1 of flag


class RequestCode(IntEnum):
    """Requests that a NameServer answers, and the only one that it sends. This product adds no codes (ADR 0057).

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
    """Programming languages that a peer may declare.

    Source: rocketmq 5.3.3, LanguageCode. The values 0 to 11 exist in every release since 4.4.0.
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


# Ordinals of releases. Source: rocketmq 5.3.3, MQVersion.Version.
V3_0_11: Final = 37  # since then, the body of REGISTER_BROKER is a RegisterBrokerBody
V4_9_4: Final = 401  # since then, routes are answered in strict JSON
V5_0_0: Final = 413  # since then, compressed registrations carry static topics
MQ_VERSION: Final = 479  # V5_3_3, the release whose behaviour this server has


@dataclass(frozen=True, slots=True)
class RemotingCommand:
    """A request or a response.

    Attributes:
        code: Request code, or response code if the response flag is set. 16 bits signed in a binary header, else 32.
        language: The programming language that the sender declares; None if it is unknown.
        version: Ordinal of the sender's release (MQVersion), 0 if never set.
        opaque: Correlation id, 32 bits signed, copied into the response.
        flag: Bit set of RESPONSE_FLAG and ONEWAY_FLAG.
        remark: Text of an error; None if absent.
        ext_fields: The custom header by property name; None if absent, which differs from an empty one.
        body: The body's bytes; None if there is no body. On the wire, an empty body equals no body.
        serialize_type: Encoding of the header.
    """

    code: int
    language: LanguageCode | None = LanguageCode.JAVA
    version: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: Mapping[str, str] | None = None
    body: bytes | None = None
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no response."""
        return self.flag & ONEWAY_FLAG != 0


def response_to(
    request: RemotingCommand,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    ext_fields: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    serialize_type: SerializeType | None = None,
) -> RemotingCommand:
    """Return the response to ``request``, with its opaque, this server's version and the response flag.

    Its language is PYTHON, which every release since 4.4.0 can decode; no peer evaluates the language.

    Args:
        code: Response code.
        remark: Text of an error, if any.
        ext_fields: The response's custom header; an empty one is written, None is not.
        body: The response's body, if any.
        serialize_type: Encoding of the header; None for the encoding of the request.
    """
    # Differs from RocketMQ: 5.x answers in its own configured type, so a binary request gets a JSON header. 4.9.4 to
    # 4.9.8 answer in the type of the request, and every peer decodes by the type byte.
    return RemotingCommand(
        code=code,
        language=LanguageCode.PYTHON,
        version=MQ_VERSION,
        opaque=request.opaque,
        flag=RESPONSE_FLAG,
        remark=remark,
        ext_fields=ext_fields,
        body=body,
        serialize_type=request.serialize_type if serialize_type is None else serialize_type,
    )


ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"


@dataclass(frozen=True, slots=True)
class AclCredentials:
    """An account with which requests are signed.

    Attributes:
        access_key: Name of the account, sent with every request.
        secret_key: The secret that both sides know; never sent.
        security_token: Sent and signed as well, if a token service requires it.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def sign(ext_fields: Mapping[str, str], body: bytes | None, secret: str) -> str:
    """Return the signature that a request must carry.

    Args:
        ext_fields: All ext fields including AccessKey (and SecurityToken). A Signature among them is ignored.
        body: The request's body as sent.
        secret: The account's secret.

    Returns:
        The 20 bytes of the HMAC, in Base64.
    """
    values = (ext_fields[name] for name in sorted(ext_fields, key=_java_order) if name != SIGNATURE)
    # Like Java, this replaces a lone surrogate by a question mark.
    content = "".join(values).encode(errors="replace") + (body or b"")
    return base64.b64encode(hmac.digest(secret.encode(errors="replace"), content, "sha1")).decode()


def signed(request: RemotingCommand, credentials: AclCredentials) -> RemotingCommand:
    """Return ``request`` with AccessKey and Signature (and SecurityToken, if there is one) added to its ext fields."""
    ext_fields = {**(request.ext_fields or {}), ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        ext_fields[SECURITY_TOKEN] = credentials.security_token
    ext_fields[SIGNATURE] = sign(ext_fields, request.body, credentials.secret_key)
    return replace(request, ext_fields=ext_fields)


def _java_order(name: str) -> bytes:
    """Return a sort key for Java's order of strings: by UTF-16 unit, which above U+FFFF is not that of code points."""
    return name.encode("utf-16-be", "surrogatepass")
