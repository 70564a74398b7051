"""The JSON header, serialize type 0: RemotingCommand's properties as fastjson 1.2.83 writes and reads them.

The encoder writes the same bytes as Java: property order, omission of nulls, escapes. The decoder follows fastjson's
casts (``"0"`` for an int, ``true`` for a string) and its dialect, and ignores unknown properties.
Source: rocketmq 5.3.3, RemotingSerializable and RemotingCommand; fastjson 1.2.83, TypeUtils.castToInt, StringCodec.
"""

from typing import Any, Final, NoReturn

import orjson

from namesrv_stream.errors import HeaderDecodeError
from namesrv_stream.remoting.codes import LanguageCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.fastjson import loads, loads_lenient, quote_legacy
from namesrv_stream.remoting.fastjson.casts import as_integer

# Reading fastjson's dialect blocks the server's loop for about a microsecond per token. Real headers are far smaller.
MAX_LENIENT_BYTES: Final = 64 * 1024

_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_LANGUAGES: Final[dict[str, LanguageCode]] = {language.name: language for language in LanguageCode}


def encode_header(command: RemotingCommand) -> bytes:
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


def decode_header(header: bytes, body: bytes | None) -> RemotingCommand:
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
        remark=remark if remark is None or type(remark) is str else _text("remark", remark),
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
        _fail("it is not an object")
    return properties


def _lenient_properties(header: bytes) -> Any:
    if len(header) > MAX_LENIENT_BYTES:
        _fail(f"it is not JSON, and with {len(header)} bytes too long to be read leniently")
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
        _fail(f"{name} {error}")


def _language(value: object) -> LanguageCode | None:
    """Return a language by name (in upper or lower case, as in fastjson) or by number; None if it is unknown."""
    if isinstance(value, str):
        language = _LANGUAGES.get(value)
        return _LANGUAGES.get(value.upper()) if language is None else language
    if type(value) is int and 0 <= value < len(_LANGUAGES):
        return LanguageCode(value)
    return None


def _ext_fields(value: object, header: bytes) -> dict[str, str]:
    if not isinstance(value, dict):
        _fail("extFields is not an object")
    if all(type(item) is str for item in value.values()):
        return value
    has_fraction = any(isinstance(item, float) for item in value.values())
    texts = _number_texts(header) if has_fraction else {}
    return {
        key: texts[key] if isinstance(item, float) else _text(key, item)
        for key, item in value.items()
        if item is not None
    }


def _number_texts(header: bytes) -> dict[str, str]:
    """Return the ext fields with numbers as written: "1.50" keeps its zero, and 20 digits are not rounded."""
    if len(header) > MAX_LENIENT_BYTES:
        _fail(f"extFields has fractions, and {len(header)} bytes are too many for reading them as text")
    try:
        ext_fields: dict[str, str] = loads_lenient(header, numbers_as_text=True)["extFields"]
    except ValueError as error:
        raise HeaderDecodeError(SerializeType.JSON, str(error)) from error
    return ext_fields


def _text(name: str, value: object) -> str:
    """Cast ``value`` to a Java String: a text is itself, other values are their JSON."""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        _fail(f"{name} cannot be converted to text")


def _fail(reason: str) -> NoReturn:
    raise HeaderDecodeError(SerializeType.JSON, reason)
