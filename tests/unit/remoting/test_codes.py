import pytest

from namesrv_stream.remoting.command import MQ_VERSION, V4_9_4, V5_0_0, LanguageCode, RequestCode
from tests.vectors.captured import captured_frames


@pytest.mark.parametrize(("ordinal", "release"), [(V4_9_4, (4, 9, 4)), (V5_0_0, (5, 0, 0)), (MQ_VERSION, (5, 3, 3))])
def test_a_release_has_its_ordinal(ordinal: int, release: tuple[int, int, int]) -> None:
    """Each minor release has ten patches, and each patch has a snapshot."""
    major, minor, patch = release
    assert ordinal == {4: 213, 5: 413}[major] + 20 * minor + 2 * patch


def test_every_captured_request_has_a_name() -> None:
    codes = {captured.command.code for captured in captured_frames() if captured.from_peer}

    assert codes <= set(RequestCode)


def test_language_codes_have_no_gap() -> None:
    assert [int(language) for language in LanguageCode] == list(range(14))
