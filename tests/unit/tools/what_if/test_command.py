"""The flags of ``what-if``."""

import re

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.tools.what_if.what_if_command import parse_timeouts


def test_timeouts_are_each_tried_once_from_the_shortest() -> None:
    assert parse_timeouts("90s, 60s,1m,1500") == [1_500, 60_000, 90_000]


@pytest.mark.parametrize("text", ["", "60s,", "x", "0s", "25h", "60 parsecs"])
def test_a_mistake_names_the_flag(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("--timeout")):
        parse_timeouts(text)
