import pytest

from namesrv_stream.route.settings import FoldSettings


@pytest.mark.parametrize(
    ("asked_ms", "timeout_ms"), [(None, 50), (1, 10), (9, 10), (10, 10), (11, 11), (100, 100), (101, 100), (2**63, 100)]
)
def test_timeout_is_what_is_asked_between_floor_and_ceiling(asked_ms: int | None, timeout_ms: int) -> None:
    settings = FoldSettings(default_timeout_ms=50, min_timeout_ms=10, max_timeout_ms=100)

    assert settings.effective_timeout_ms(asked_ms) == timeout_ms


def test_defaults_are_those_of_the_design() -> None:
    settings = FoldSettings()

    assert (settings.default_timeout_ms, settings.server_silent_ms, settings.server_lost_ms) == (
        120_000,
        15_000,
        600_000,
    )
    assert settings.registration_retention_ms == 24 * 3_600_000


def test_settings_of_a_newer_version_are_ignored() -> None:
    assert FoldSettings().with_values({"of tomorrow": 1}) == FoldSettings()


@pytest.mark.parametrize(
    "values",
    [{"max_gap_ms": 0}, {"max_gap_ms": -1}, {"max_gap_ms": True}, {"delete_topic_with_broker_registration": 1}],
)
def test_values_that_make_no_sense_are_named(values: dict[str, int | bool]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        FoldSettings().with_values(values)
