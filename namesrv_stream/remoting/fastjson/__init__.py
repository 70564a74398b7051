"""JSON in the dialect of fastjson 1.2.83, which accepts and writes more than standard JSON.

It is a sub-package because RocketMQ's headers and bodies both use it, and nothing in it is specific to RocketMQ.
Callers import its functions from this module; only ``conversion`` is imported directly.
"""

from namesrv_stream.remoting.fastjson.reader import (
    MAX_DEPTH,
    MAX_LENIENT_BYTES,
    MAX_VALUES,
    TooLongForLenient,
    has_more_values,
    loads,
    loads_lenient,
    loads_written,
    require_few_values,
)
from namesrv_stream.remoting.fastjson.writer import JavaMap, dumps_legacy, dumps_strict, quote_legacy, quote_strict

__all__ = [
    "MAX_DEPTH",
    "MAX_LENIENT_BYTES",
    "MAX_VALUES",
    "JavaMap",
    "TooLongForLenient",
    "dumps_legacy",
    "dumps_strict",
    "has_more_values",
    "loads",
    "loads_lenient",
    "loads_written",
    "quote_legacy",
    "quote_strict",
    "require_few_values",
]
