"""Profiles computed from samples of py-spy."""

from tests.bench.profiles import hottest


def test_functions_are_ranked_by_their_own_samples() -> None:
    folded = "main;read;parse 30\nmain;read 60\nmain;write;parse 10"
    assert hottest(folded) == [(0.6, "read"), (0.4, "parse")]


def test_number_of_shown_functions_is_limited() -> None:
    assert hottest("a 1\nb 3", count=1) == [(0.75, "b")]
