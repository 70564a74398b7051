import pytest

from namesrv_stream.remoting.command import (
    HIGHER_VERSION,
    MQ_VERSION,
    V4_9_4,
    V5_0_0,
    V5_3_1,
    LanguageCode,
    RequestCode,
    version_of,
)
from tests.vectors.captured import captured_frames


@pytest.mark.parametrize(
    ("release", "ordinal"),
    [
        ((4, 0, 0), 213),
        ((4, 4, 0), 293),
        ((4, 5, 2), 317),
        ((4, 6, 0), 333),
        ((4, 7, 1), 355),
        ((4, 8, 0), 373),
        ((4, 9, 3), 399),
        ((4, 9, 4), V4_9_4),
        ((4, 9, 8), 409),
        ((5, 0, 0), V5_0_0),
        ((5, 1, 0), 433),
        ((5, 2, 0), 453),
        ((5, 3, 0), 473),
        ((5, 3, 1), V5_3_1),
        ((5, 3, 3), MQ_VERSION),
        ((5, 4, 0), 493),
        ((5, 5, 0), 513),
        ((5, 9, 9), HIGHER_VERSION - 1),
    ],
)
def test_a_release_has_its_ordinal(release: tuple[int, int, int], ordinal: int) -> None:
    assert version_of(*release) == ordinal


@pytest.mark.parametrize("release", [(3, 0, 11), (6, 0, 0), (5, 10, 0), (5, 0, 10), (5, -1, 0)])
def test_a_release_outside_the_formula_has_no_ordinal(release: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no ordinal"):
        version_of(*release)


def test_every_captured_request_has_a_name() -> None:
    codes = {captured.command.code for captured in captured_frames() if captured.from_peer}

    assert codes <= set(RequestCode)


def test_language_codes_have_no_gap() -> None:
    assert [int(language) for language in LanguageCode] == list(range(14))
