"""One request, with names that belong to one scenario.

``~`` in any text stands for the scenario's own prefix, so no other scenario has the topic ``~T``. When the frame is
made, ``~`` is replaced and checksums are computed.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tests.differential.wire import JSON, ONEWAY, ROCKETMQ, V5_3_3, Frame, binary_header, json_header

#: As the value of an ext field: the correct checksum of the body.
CRC: Final = "=crc"
_LANGUAGES: Final = {"JAVA": 0, "CPP": 1, "GO": 9}


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        pack: Encodes the body after ``~`` has been replaced.
        header_text: The whole JSON header instead of the one made of the other attributes; ``%d`` is the opaque.
        topics: Topics that it registers.
    """

    code: int
    ext_fields: Mapping[str, str] | None = None
    body: bytes = b""
    pack: Callable[[bytes], bytes] = bytes
    version: int = V5_3_3
    language: str = "JAVA"
    header_type: int = JSON
    is_oneway: bool = False
    header_text: bytes | None = None
    topics: tuple[str, ...] = field(default=(), compare=False)

    def frame(self, prefix: str) -> Frame:
        """Return the frame, with the scenario's prefix in all names."""
        body = self.pack(self.body.replace(b"~", prefix.encode()))
        if self.header_text is not None:
            text = self.header_text.replace(b"~", prefix.encode())
            return Frame(lambda opaque: text.replace(b"%d", b"%d" % opaque), body, JSON, self.is_oneway)
        fields = None
        if self.ext_fields is not None:
            fields = {k: v.replace("~", prefix) for k, v in self.ext_fields.items()}
            fields = {k: str(zlib.crc32(body) & 0x7FFFFFFF) if v == CRC else v for k, v in fields.items()}
        flag = ONEWAY if self.is_oneway else 0
        if self.header_type == ROCKETMQ:
            language = _LANGUAGES[self.language]
            header = binary_header(self.code, fields, version=self.version, flag=flag, language=language)
        else:
            header = json_header(self.code, fields, version=self.version, flag=flag, language=self.language)
        return Frame(header, body, self.header_type, self.is_oneway)

    def with_fields(self, **fields: str | None) -> "Request":
        """Return a copy with other ext fields; None removes one."""
        merged = {**(self.ext_fields or {}), **fields}
        return replace(self, ext_fields={k: v for k, v in merged.items() if v is not None})

    def oneway(self) -> "Request":
        return replace(self, is_oneway=True)

    def binary(self) -> "Request":
        """Return a copy with a ROCKETMQ header."""
        return replace(self, header_type=ROCKETMQ)

    def of_version(self, version: int) -> "Request":
        return replace(self, version=version)

    def of_language(self, language: str) -> "Request":
        return replace(self, language=language)

    def with_body(self, body: bytes) -> "Request":
        return replace(self, body=body)

    @property
    def is_strict_route(self) -> bool:
        """Whether Java answers it in strict JSON with sorted maps."""
        fields = self.ext_fields or {}
        is_standard = self.version >= 401 or fields.get("acceptStandardJsonOnly", "").lower() == "true"
        return self.code == 105 and is_standard and fields.get("__ZONE_MODE", "").lower() != "true"
