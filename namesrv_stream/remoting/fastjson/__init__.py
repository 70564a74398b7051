"""JSON as fastjson 1.2.83 reads and writes it, which is more than JSON in both directions."""

from namesrv_stream.remoting.fastjson.reader import MAX_DEPTH, loads, loads_lenient
from namesrv_stream.remoting.fastjson.writer import JavaMap, dumps_legacy, dumps_strict, quote_legacy, quote_strict

__all__ = [
    "MAX_DEPTH",
    "JavaMap",
    "dumps_legacy",
    "dumps_strict",
    "loads",
    "loads_lenient",
    "quote_legacy",
    "quote_strict",
]
