"""Parses points in time (instants) and durations that users write, and prints them: the only grammar for both.

A duration is a number and a unit: ``500ms``, ``1.5s``, ``2m``, ``3h``, ``7d``, ``2w``. A number without a unit is
refused, except where a release has fixed its meaning: milliseconds in a setting whose name ends in ``_ms``, seconds of
``--wait`` and ``--patience``.

An instant without a zone is in the local time of the machine that parses it: the one that runs the command, or, for an
HTTP request, the server.
Printed instants are in UTC and say so.
"""

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final, Literal

from namesrv_stream.errors import ConfigError

_DURATION_TEXT: Final = re.compile(r"(\d++(?:\.\d++)?)\s*+(ms|s|m|h|d|w)?")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
#: The source of a flag in errors.
COMMAND_LINE: Final = "command line"
_EXPECTED: Final = (
    "expected ISO 8601 such as 2026-11-20 03:12 (in this machine's zone, unless it ends in Z or +01:00), a time of"
    " today such as 03:12, yesterday 03:12, epoch milliseconds (13 digits), or how long ago it was, such as 2h, 30m, 7d"
)
#: 2001 and later. A text with fewer digits is more likely a date: 202611200312 is 2026-11-20 03:12.
_EPOCH_MS: Final = re.compile(r"\d{13}")
_COMPACT: Final = re.compile(r"\d{12}")
#: A longer text is neither an instant nor a duration. Errors repeat at most this much of it.
_MOST_CHARS: Final = 60
_TIME_OF_DAY: Final = re.compile(r"\d{1,2}:")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}
#: All query engines support the years in between.
_LOWEST_MS: Final = 0
_HIGHEST_MS: Final = 253_402_300_799_999  # 9999-12-31


def parse_duration_ms(
    text: str, bare: Literal["ms", "s"] | None = None, *, least_ms: int = 0, most_ms: int | None = None
) -> int:
    """Parse a duration such as ``30s``; the result is in milliseconds.

    Args:
        text: As a user wrote it.
        bare: The unit of a number without one; None if it needs one. 0 never needs one.
        least_ms: The shortest permitted duration.
        most_ms: The longest one; None for no limit.

    Raises:
        ValueError: The text is not a duration, or the duration is too short or too long.
    """
    match = _DURATION_TEXT.fullmatch(text.strip()) if len(text) <= _MOST_CHARS else None
    if match is None:
        raise ValueError(f"{_shown(text)} is not a duration: expected one like 30s, 500ms or 2m")
    number, unit = float(match[1]), match[2] or bare
    if unit is None and number:
        raise ValueError(f"{text.strip()} has no unit: write {text.strip()}s for seconds, or ms, m, h, d")
    ms = round(number * _UNIT_MS[unit or "ms"])
    if ms < least_ms or (most_ms is not None and ms > most_ms):
        limit = f"at least {duration(least_ms)}"
        if most_ms is not None:
            limit = f"between {duration(least_ms)} and {duration(most_ms)}"
        raise ValueError(f"{text.strip()} is not {limit}")
    return ms


def parse_instant(flag: str, text: str, now_ms: int, zone: tzinfo | None = None, source: str = COMMAND_LINE) -> int:
    """Parse an instant; the result is in epoch milliseconds.

    Args:
        flag: Name of the flag, for the error.
        text: One of the forms in ``_EXPECTED``. A time in the hour that occurs twice, at the end of summer time, means
            the first occurrence. A time in the skipped hour is read with the offset before the change.
        now_ms: The reference of "now" and "2h", in epoch milliseconds.
        zone: The time zone of a text without one; None for this machine's zone.
        source: Where the flag was given, for errors.

    Raises:
        ConfigError: The text is not an instant.
    """
    text = text.strip()
    at_ms = _instant_ms(text, now_ms, zone) if len(text) <= _MOST_CHARS else None
    if at_ms is None or not _LOWEST_MS <= at_ms <= _HIGHEST_MS:
        raise ConfigError(source, flag, f"{_shown(text)} is not a point in time: {_EXPECTED}")
    return at_ms


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…")


def parse_past_instant(flag: str, text: str, now_ms: int, *, source: str = COMMAND_LINE) -> int:
    """Parse an instant that must not be in the future; the result is in epoch milliseconds.

    Raises:
        ConfigError: The text is not an instant, or in the future.
    """
    return check_past(flag, parse_instant(flag, text, now_ms, source=source), now_ms, source=source)


def check_past(flag: str, at_ms: int, now_ms: int, *, source: str = COMMAND_LINE) -> int:
    """Return ``at_ms`` unless it is in the future.

    Raises:
        ConfigError: The instant is in the future.
    """
    if at_ms > now_ms:
        raise ConfigError(source, flag, f"{instant(at_ms)} is in the future; now it is {instant(now_ms)}")
    return at_ms


def _instant_ms(text: str, now_ms: int, zone: tzinfo | None) -> int | None:
    if text == "now":
        return now_ms
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    try:
        ago = _DURATION_TEXT.fullmatch(text.removeprefix("-"))
        if ago and ago[2]:  # a number without a unit is probably meant as something else
            return now_ms - parse_duration_ms(ago[0])
        at = _datetime(text, now_ms, zone)
        aware = at if at.tzinfo else (at.astimezone() if zone is None else at.replace(tzinfo=zone))
        return round(aware.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def _datetime(text: str, now_ms: int, zone: tzinfo | None) -> datetime:
    """Parse an instant; raises ``ValueError``."""
    day, _, of_day = ("today", "", text) if _TIME_OF_DAY.match(text) else text.partition(" ")
    if day not in _DAYS_AGO:
        return datetime.fromisoformat(f"{text[:8]}T{text[8:]}" if _COMPACT.fullmatch(text) else text)
    of_day = of_day.strip() or "00:00"
    at_time = time.fromisoformat(f"0{of_day}" if of_day[1:2] == ":" else of_day)
    # A text with a zone means a day in that zone.
    today = datetime.fromtimestamp(now_ms / 1000, tz=at_time.tzinfo or zone).date()
    return datetime.combine(today - timedelta(days=_DAYS_AGO[day]), at_time)


def utc(at_ms: int) -> datetime:
    """Return epoch milliseconds as a ``datetime`` in UTC, without rounding."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def instant(at_ms: int, *, with_ms: bool = False) -> str:
    """Return an instant as text, in UTC: ``2026-11-23 22:21:01Z``.

    Args:
        at_ms: Epoch milliseconds below the year 10000.
        with_ms: Whether to show milliseconds, too: ``2026-11-23 22:21:01.250Z``.
    """
    at = datetime.fromtimestamp(at_ms // 1000, tz=UTC)
    fraction = f".{at_ms % 1000:03d}" if with_ms else ""
    return f"{at:%Y-%m-%d %H:%M:%S}{fraction}Z"


def iso_instant(at_ms: int) -> str:
    """Return an instant for programs: ``2026-11-23T22:21:01.250Z``."""
    return instant(at_ms, with_ms=True).replace(" ", "T")


def duration(ms: float) -> str:
    """Return a duration as text: ``850 ms``, ``12.3 s``, ``4 min 05 s``, ``3 h 12 min``, ``2 d 07 h``."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"
