"""One message of the remoting protocol, request or response, free of how it is written."""

from collections.abc import Mapping
from dataclasses import dataclass

from namesrv_stream.remoting.codes import (
    MQ_VERSION,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    LanguageCode,
    ResponseCode,
    SerializeType,
)


@dataclass(frozen=True, slots=True)
class RemotingCommand:
    """A request or a response.

    Attributes:
        code: Request code, or response code if the response flag is set. 16 bits signed in a binary header, else 32.
        language: What the sender says it is written in; None if it says something unknown.
        version: Ordinal of the sender's release (``codes.version_of``), 0 if never set.
        opaque: Correlation id, 32 bits signed, copied into the response.
        flag: Bit set of RESPONSE_FLAG and ONEWAY_FLAG.
        remark: Text of an error; None if absent.
        ext_fields: The custom header by property name; None if absent, which is not the same as empty.
        body: The body's bytes; None if there is none. On the wire an empty one is none.
        serialize_type: How the header was, or is to be, written.
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
        """True if this answers a request."""
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """True if nothing may be written back."""
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
    """The response to ``request``: its opaque, our version, the response flag.

    Its language is PYTHON: true, known to every release since 4.4.0, and looked at by nobody.

    Args:
        request: The request answered.
        code: Response code.
        remark: Text of the error, if one.
        ext_fields: The response's custom header; an empty one is written as such.
        body: The response's body.
        serialize_type: How to write the header; None means the way the request was written.
    """
    # Differs from RocketMQ: 5.x answers in its own configured type, so a binary request gets a JSON header. 4.9.4 to
    # 4.9.8 answer in the request's, and every peer decodes by the type byte.
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
