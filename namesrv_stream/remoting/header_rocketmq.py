"""The binary header, serialize type 1.

::

    code (2) | language (1) | version (2) | opaque (4) | flag (4) | remark (4 + n) | ext fields (4 + n)
    ext fields: key (2 + n) | value (4 + n), repeated

All numbers are big-endian and signed, texts are UTF-8, and a length of 0 means null.
Source: rocketmq 5.3.3, RocketMQSerializable.
"""

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Final, NoReturn

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.remoting.codes import LanguageCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand

_FIXED: Final = Struct(">hbhiii")  # code to remark length
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_LANGUAGES: Final[dict[int, LanguageCode]] = {int(language): language for language in LanguageCode}


def encode_header(command: RemotingCommand) -> bytes:
    """Return the header of ``command``.

    An unknown language is written as OTHER. The decoder takes ``ext_fields`` with an empty key or value as absent.

    Raises:
        ValueError: A field does not fit its width.
    """
    remark = _utf8(command.remark or "")
    language = LanguageCode.OTHER if command.language is None else command.language
    try:
        ext_fields = _encode_ext_fields(command.ext_fields or {})
        fixed = _FIXED.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
        return b"".join((fixed, remark, _INT.pack(len(ext_fields)), ext_fields))
    except StructError as error:
        raise ValueError(f"a field of the command does not fit a binary header: {error}") from error


def decode_header(header: bytes, body: bytes | None) -> RemotingCommand:
    """Return the command of ``header`` and ``body``.

    As in Java, invalid UTF-8 is replaced. Lengths are checked against the header; Java checks some of them against the
    frame. Bytes after the last field are an error; Java takes them as the beginning of the body.

    Raises:
        HeaderDecodeError: A length is negative or exceeds the header, or the header is longer than its fields.
    """
    size = len(header)
    if size < _FIXED.size:
        _fail(f"{size} bytes are fewer than its fixed part")
    code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
    remark_end = _end(_FIXED.size, remark_bytes, size, "remark")
    ext_fields_at = _end(remark_end, _INT.size, size, "length of ext fields")
    ext_fields_bytes = _INT.unpack_from(header, remark_end)[0]
    if _end(ext_fields_at, ext_fields_bytes, size, "ext fields") != size:
        _fail("bytes after the last field")
    return RemotingCommand(
        code=code,
        language=_LANGUAGES.get(language),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=_text(header[_FIXED.size : remark_end]),
        ext_fields=_decode_ext_fields(header, ext_fields_at) if ext_fields_bytes else None,
        body=body,
        serialize_type=SerializeType.ROCKETMQ,
    )


def _encode_ext_fields(ext_fields: Mapping[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, value in ext_fields.items():
        key, text = _utf8(name), _utf8(value)
        parts += (_SHORT.pack(len(key)), key, _INT.pack(len(text)), text)
    return b"".join(parts)


def _decode_ext_fields(header: bytes, position: int) -> dict[str, str]:
    """Return the entries from ``position`` to the end, without those that have a null key or value."""
    size = len(header)
    ext_fields: dict[str, str] = {}
    while position < size:
        key_at = _end(position, _SHORT.size, size, "length of a key")
        key_end = _end(key_at, _SHORT.unpack_from(header, position)[0], size, "key")
        value_at = _end(key_end, _INT.size, size, "length of a value")
        position = _end(value_at, _INT.unpack_from(header, key_end)[0], size, "value")
        key, value = _text(header[key_at:key_end]), _text(header[value_at:position])
        if key is not None and value is not None:
            ext_fields[key] = value
    return ext_fields


def _end(start: int, length: int, limit: int, field: str) -> int:
    """Return the end of a field of ``length`` bytes at ``start``, if it is within the header."""
    if length < 0:
        _fail(f"{field} of {length} bytes")
    if start + length > limit:
        _fail(f"{field} ends {start + length - limit} bytes after the header")
    return start + length


def _text(raw: bytes) -> str | None:
    return raw.decode("utf-8", "replace") if raw else None


def _utf8(text: str) -> bytes:
    """Encode as Java does: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")


def _fail(reason: str) -> NoReturn:
    raise HeaderDecodeError(SerializeType.ROCKETMQ, reason)
