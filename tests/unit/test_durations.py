"""Durations as people write them."""

import pytest

from namesrv_stream.durations import parse_duration_ms


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
        ("250", 250),
        (" 3 s ", 3_000),
    ],
)
def test_a_duration_has_a_unit_or_is_milliseconds(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "s", "-1s", "1y", "1s2", "x", f"{'9' * 400}d"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration_ms(text)
