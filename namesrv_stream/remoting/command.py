"""One message of the remoting protocol, a request or a response, independent of its encoding."""

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
        language: The language in which the sender declares to be written; None if it is unknown.
        version: Ordinal of the sender's release (``codes.version_of``), 0 if never set.
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

    Its language is PYTHON, which every release since 4.4.0 knows, and which no peer evaluates.

    Args:
        request: The request.
        code: Response code.
        remark: Text of an error, if any.
        ext_fields: The response's custom header; an empty one is written, None is not.
        body: The response's body.
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
