"""The encodings of a command's header.

The JSON header, serialize type 0, contains RemotingCommand's properties as fastjson 1.2.83 writes and reads them. The
encoder writes the same bytes as Java: property order, omission of nulls, escapes. The decoder follows fastjson's casts
(``"0"`` for an int, ``true`` for a string) and its dialect, and ignores unknown properties.
Source: rocketmq 5.3.3, RemotingSerializable and RemotingCommand; fastjson 1.2.83, TypeUtils.castToInt, StringCodec.

The binary header, serialize type 1::

    code (2) | language (1) | version (2) | opaque (4) | flag (4) | remark (4 + n) | ext fields (4 + n)
    ext fields: key (2 + n) | value (4 + n), repeated

All numbers are big-endian and signed, texts are UTF-8, and a length of 0 means null.
Source: rocketmq 5.3.3, RocketMQSerializable.
"""

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NoReturn

import orjson

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.remoting.command import LanguageCode, RemotingCommand, SerializeType
from namesrv_stream.remoting.fastjson import loads, loads_lenient, quote_legacy
from namesrv_stream.remoting.fastjson.conversion import as_integer

# Differs from RocketMQ. Real headers have some twenty fields in standard JSON. More would block the server's loop:
# fastjson's dialect takes about a microsecond per token, a field half of that.
MAX_LENIENT_BYTES: Final = 8 * 1024
MAX_FIELDS: Final = 1_000

_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_LANGUAGES_BY_NAME: Final[dict[str, LanguageCode]] = {language.name: language for language in LanguageCode}


def encode_json_header(command: RemotingCommand) -> bytes:
    """Return the header of ``command``, byte for byte as a Java peer writes it.

    Raises:
        ValueError: A number does not fit 32 bits.
    """
    for number in (command.code, command.flag, command.opaque, command.version):
        if not _INT_MIN <= number <= _INT_MAX:
            raise ValueError(f"{number} does not fit a 32-bit field of the header")
    parts = [f'{{"code":{int(command.code)}']
    if command.ext_fields is not None:
        entries = [f"{quote_legacy(name)}:{quote_legacy(value)}" for name, value in command.ext_fields.items()]
        parts.append(f'"extFields":{{{",".join(entries)}}}')
    parts.append(f'"flag":{int(command.flag)}')
    if command.language is not None:
        parts.append(f'"language":"{command.language.name}"')
    parts.append(f'"opaque":{command.opaque}')
    if command.remark is not None:
        parts.append(f'"remark":{quote_legacy(command.remark)}')
    parts.append(f'"serializeTypeCurrentRPC":"{command.serialize_type.name}","version":{command.version}}}')
    return ",".join(parts).encode("utf-8", "replace")


def decode_json_header(header: bytes, body: bytes | None) -> RemotingCommand:
    """Return the command of ``header`` and ``body``.

    A missing or null number is 0, a missing or null text is None. Null values of ext fields are left out, because no
    reader distinguishes them from absent ones.

    Raises:
        HeaderDecodeError: The header is not an object in fastjson's dialect of JSON, or a property cannot be cast.
    """
    properties = _properties(header)
    get = properties.get
    ext_fields = get("extFields")
    if ext_fields is not None:
        ext_fields = _ext_fields(ext_fields, header)
    remark = get("remark")
    return RemotingCommand(
        code=_int("code", get("code")),
        language=_language(get("language")),
        version=_int("version", get("version")),
        opaque=_int("opaque", get("opaque")),
        flag=_int("flag", get("flag")),
        remark=remark if remark is None or type(remark) is str else _json_text("remark", remark),
        ext_fields=ext_fields,
        body=body,
        serialize_type=SerializeType.JSON,
    )


def _properties(header: bytes) -> dict[str, Any]:
    try:
        properties = orjson.loads(header)
    except ValueError:
        properties = _lenient_properties(header)
    if not isinstance(properties, dict):
        _fail_json("it is not an object")
    return properties


def _lenient_properties(header: bytes) -> Any:
    if len(header) > MAX_LENIENT_BYTES:
        _fail_json(f"it is not JSON, and with {len(header)} bytes too long to be read leniently")
    try:
        return loads(header)
    except ValueError as error:
        raise HeaderDecodeError(SerializeType.JSON, str(error)) from error


def _int(name: str, value: object) -> int:
    """Cast ``value`` to a Java int as fastjson does: texts are parsed, fractions are cut off, null is 0."""
    if type(value) is int and _INT_MIN <= value <= _INT_MAX:
        return value
    try:
        return as_integer(value, 32) or 0
    except ValueError as error:
        _fail_json(f"{name} {error}")


def _language(value: object) -> LanguageCode | None:
    """Return a language by name (in upper or lower case, as in fastjson) or by number; None if it is unknown."""
    if isinstance(value, str):
        language = _LANGUAGES_BY_NAME.get(value)
        return _LANGUAGES_BY_NAME.get(value.upper()) if language is None else language
    if type(value) is int and 0 <= value < len(_LANGUAGES_BY_NAME):
        return LanguageCode(value)
    return None


def _ext_fields(value: object, header: bytes) -> dict[str, str]:
    if not isinstance(value, dict):
        _fail_json("extFields is not an object")
    if len(value) > MAX_FIELDS:
        _fail_json(f"{len(value)} ext fields exceed {MAX_FIELDS}")
    if all(type(item) is str for item in value.values()):
        return value
    has_fraction = any(isinstance(item, float) for item in value.values())
    texts = _number_texts(header) if has_fraction else {}
    return {
        key: texts[key] if isinstance(item, float) else _json_text(key, item)
        for key, item in value.items()
        if item is not None
    }


def _number_texts(header: bytes) -> dict[str, str]:
    """Return the ext fields, with numbers as texts as written: "1.50" keeps its zero, 20 digits are not rounded."""
    if len(header) > MAX_LENIENT_BYTES:
        _fail_json(f"extFields has fractions, and {len(header)} bytes are too many for reading them as text")
    try:
        ext_fields: dict[str, str] = loads_lenient(header, numbers_as_text=True)["extFields"]
    except ValueError as error:
        raise HeaderDecodeError(SerializeType.JSON, str(error)) from error
    return ext_fields


def _json_text(name: str, value: object) -> str:
    """Cast ``value`` to a Java String: a text is unchanged, other values become their JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        _fail_json(f"{name} cannot be converted to text")


def _fail_json(reason: str) -> NoReturn:
    raise HeaderDecodeError(SerializeType.JSON, reason)


_FIXED: Final = Struct(">hbhiii")  # code to remark length
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
_LANGUAGES_BY_NUMBER: Final[dict[int, LanguageCode]] = {int(language): language for language in LanguageCode}


def encode_binary_header(command: RemotingCommand) -> bytes:
    """Return the header of ``command``.

    An unknown language is written as OTHER. The decoder treats ext fields with an empty key or value as absent.

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


def decode_binary_header(header: bytes, body: bytes | None) -> RemotingCommand:
    """Return the command of ``header`` and ``body``.

    As in Java, invalid UTF-8 is replaced. Lengths are checked against the header; Java checks some of them against the
    frame. Bytes after the last field are an error; Java takes them as the beginning of the body.

    Raises:
        HeaderDecodeError: A length is negative or exceeds the header, or the header is longer than its fields.
    """
    size = len(header)
    if size < _FIXED.size:
        _fail_binary(f"{size} bytes are fewer than its fixed part")
    code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
    remark_end = _end(_FIXED.size, remark_bytes, size, "remark")
    ext_fields_at = _end(remark_end, _INT.size, size, "length of ext fields")
    ext_fields_bytes = _INT.unpack_from(header, remark_end)[0]
    if _end(ext_fields_at, ext_fields_bytes, size, "ext fields") != size:
        _fail_binary("bytes after the last field")
    return RemotingCommand(
        code=code,
        language=_LANGUAGES_BY_NUMBER.get(language),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=_binary_text(header[_FIXED.size : remark_end]),
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
    for _ in range(MAX_FIELDS):
        if position >= size:
            return ext_fields
        key_at = _end(position, _SHORT.size, size, "length of a key")
        key_end = _end(key_at, _SHORT.unpack_from(header, position)[0], size, "key")
        value_at = _end(key_end, _INT.size, size, "length of a value")
        position = _end(value_at, _INT.unpack_from(header, key_end)[0], size, "value")
        key, value = _binary_text(header[key_at:key_end]), _binary_text(header[value_at:position])
        if key is not None and value is not None:
            ext_fields[key] = value
    if position < size:
        _fail_binary(f"more than {MAX_FIELDS} ext fields")
    return ext_fields


def _end(start: int, length: int, limit: int, field: str) -> int:
    """Return the end of a field of ``length`` bytes at ``start``; raise HeaderDecodeError if it exceeds the header."""
    if length < 0:
        _fail_binary(f"{field} of {length} bytes")
    if start + length > limit:
        _fail_binary(f"{field} ends {start + length - limit} bytes after the header")
    return start + length


def _binary_text(raw: bytes) -> str | None:
    return raw.decode("utf-8", "replace") if raw else None


def _utf8(text: str) -> bytes:
    """Encode a text as Java does: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")


def _fail_binary(reason: str) -> NoReturn:
    raise HeaderDecodeError(SerializeType.ROCKETMQ, reason)
