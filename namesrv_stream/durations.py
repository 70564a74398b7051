"""Durations as people write them: ``30s``, ``500ms``, ``2m``, ``1h``, ``7d``, ``4w``; a bare number is milliseconds."""

import math
import re
from typing import Final

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_UNIT_MS: Final = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_duration_ms(text: str) -> int:
    """``text`` in milliseconds.

    Raises:
        ValueError: It is no duration.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration: expected one like 30s, 500ms or 2m")
    ms = float(match[1]) * _UNIT_MS[match[2]]
    if math.isinf(ms):
        raise ValueError("that is no duration: it has no end")
    return round(ms)
