"""Points in time and durations: parsing and printing."""

from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import (
    duration,
    instant,
    iso_instant,
    parse_duration_ms,
    parse_instant,
    parse_past_instant,
)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30s", 30_000),
        ("500ms", 500),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1.5s", 1_500),
        ("0", 0),
        (" 3 s ", 3_000),
    ],
)
def test_a_duration_has_a_unit(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


def test_number_without_a_unit_has_the_unit_of_the_caller_or_is_refused() -> None:
    assert (parse_duration_ms("2", "ms"), parse_duration_ms("2", "s"), parse_duration_ms("2m", "s")) == (
        2,
        2_000,
        120_000,
    )
    with pytest.raises(ValueError, match="2 has no unit: write 2s for seconds, or ms, m, h, d"):
        parse_duration_ms("2")


@pytest.mark.parametrize("text", ["", "s", "-1s", "1y", "1s2", "x", f"{'9' * 400}d"])
def test_a_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration_ms(text)


NOW_MS = 1_795_284_000_000  # 2026-11-21 18:00 UTC
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
PLUS_ONE = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("2026-11-20 03:12", NOW_MS - DAY_MS - 14 * HOUR_MS - 48 * 60_000),
        ("2026-11-20T03:12:00.250Z", NOW_MS - DAY_MS - 14 * HOUR_MS - 48 * 60_000 + 250),
        ("2026-11-20T04:12+01:00", NOW_MS - DAY_MS - 14 * HOUR_MS - 48 * 60_000),
        ("202611200312", NOW_MS - DAY_MS - 14 * HOUR_MS - 48 * 60_000),
        ("20261120T0312", NOW_MS - DAY_MS - 14 * HOUR_MS - 48 * 60_000),
        ("2026-11-21", NOW_MS - 18 * HOUR_MS),
        ("1795284000000", NOW_MS),
        ("-2h", NOW_MS - 2 * HOUR_MS),
        ("-7d", NOW_MS - 7 * DAY_MS),
        ("7d", NOW_MS - 7 * DAY_MS),
        ("30 m", NOW_MS - HOUR_MS // 2),
        ("now", NOW_MS),
        ("03:12", NOW_MS - 14 * HOUR_MS - 48 * 60_000),
        ("9:30", NOW_MS - 8 * HOUR_MS - 30 * 60_000),
        ("9:30:15", NOW_MS - 8 * HOUR_MS - 30 * 60_000 + 15_000),
        ("03:12Z", NOW_MS - 14 * HOUR_MS - 48 * 60_000),
        ("yesterday 03:12", NOW_MS - DAY_MS - 14 * HOUR_MS - 48 * 60_000),
        (" today ", NOW_MS - 18 * HOUR_MS),
    ],
)
def test_instant_has_many_notations(text: str, expected_ms: int) -> None:
    assert parse_instant("--as-of", text, NOW_MS, UTC) == expected_ms


def test_text_without_a_zone_uses_the_zone_of_the_machine() -> None:
    assert parse_instant("--as-of", "2026-11-21 19:00", NOW_MS, PLUS_ONE) == NOW_MS
    assert parse_instant("--as-of", "2026-11-21 18:00Z", NOW_MS, PLUS_ONE) == NOW_MS


def test_a_time_of_day_is_of_the_current_day_in_the_named_zone() -> None:
    # In Kiribati, at UTC+14, it is the 22nd.
    assert parse_instant("--as-of", "03:12+14:00", NOW_MS, UTC) == NOW_MS - 5 * HOUR_MS + 12 * 60_000


@pytest.mark.parametrize("text", ["202613200312", "120000000000", "163200000000", "20261120031200"])
def test_only_thirteen_digits_are_epoch_milliseconds(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a point in time"):
        parse_instant("--as-of", text, NOW_MS, UTC)


@pytest.mark.parametrize("text", ["x" * 5_000, "9" * 5_000, f"-{'9' * 400}d"])
def test_error_repeats_only_the_start_of_a_long_text(text: str) -> None:
    with pytest.raises(ConfigError, match=r"…' is not a point in time") as error:
        parse_instant("--as-of", text, NOW_MS, UTC)
    assert len(str(error.value)) < 400


def test_the_first_of_two_ambiguous_hours_is_used() -> None:
    berlin = ZoneInfo("Europe/Berlin")  # back from UTC+2 to UTC+1 at 01:00 UTC
    found_ms = parse_instant("--as-of", "2026-10-25 02:30", NOW_MS, berlin)
    assert instant(found_ms, with_ms=True) == "2026-10-25 00:30:00.000Z"


def test_skipped_hour_is_read_with_the_earlier_offset() -> None:
    berlin = ZoneInfo("Europe/Berlin")  # from UTC+1 to UTC+2 at 01:00 UTC
    found_ms = parse_instant("--as-of", "2026-03-29 02:30", NOW_MS, berlin)
    assert instant(found_ms, with_ms=True) == "2026-03-29 01:30:00.000Z"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-2",
        "7",
        "1795284000",
        "202613200312",
        "120000000000",
        "2026-13-01",
        "25:00",
        "-1y",
        "0001-01-01",
        "yesterday x",
        "-",
    ],
)
def test_invalid_instant_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--as-of: .* is not a point in time: expected ISO 8601"):
        parse_instant("--as-of", text, NOW_MS, UTC)


def test_an_instant_is_shown_in_utc() -> None:
    assert instant(NOW_MS + 7) == "2026-11-21 18:00:00Z"
    assert instant(NOW_MS + 7, with_ms=True) == "2026-11-21 18:00:00.007Z"
    assert iso_instant(NOW_MS + 7) == "2026-11-21T18:00:00.007Z"


def test_a_past_instant_that_is_in_the_future_is_refused() -> None:
    assert parse_past_instant("--as-of", "-2h", NOW_MS) == NOW_MS - 2 * HOUR_MS
    expected = "--as-of: 2026-11-21 19:00:00Z is in the future; now it is 2026-11-21 18:00:00Z"
    with pytest.raises(ConfigError, match=expected):
        parse_past_instant("--as-of", "2026-11-21 19:00Z", NOW_MS)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (850, "850 ms"),
        (12_300, "12.3 s"),
        (245_000, "4 min 05 s"),
        (11_520_000, "3 h 12 min"),
        (2 * DAY_MS + 7 * HOUR_MS, "2 d 07 h"),
    ],
)
def test_a_duration_is_shown_in_the_units_that_it_has(ms: int, text: str) -> None:
    assert duration(ms) == text
