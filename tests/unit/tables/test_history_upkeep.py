"""Which rows are past their retention."""

import pytest

from namesrv_stream.tables.history_upkeep import expired_condition

_AT_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z


@pytest.mark.parametrize(
    ("table", "condition"),
    [
        ("broker_events", "event_day < DATE'2023-11-14'"),
        ("heartbeat_minutes", "day < DATE'2023-11-14'"),
        (
            "broker_sessions",
            "up_day < DATE'2023-11-14' AND down_at < '2023-11-14T22:13:20+00:00'",
        ),
        (
            "route_history",
            "from_day < DATE'2023-11-14' AND (valid_to < '2023-11-14T22:13:20+00:00' OR "
            "(valid_to IS NULL AND gone AND valid_from < '2023-11-14T22:13:20+00:00'))",
        ),
    ],
)
def test_whole_days_go_and_intervals_only_after_their_end(table: str, condition: str) -> None:
    assert expired_condition(table, _AT_MS) == condition
