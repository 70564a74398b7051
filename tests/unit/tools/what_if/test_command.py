"""The flags of ``what-if``."""

import re

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.tools.what_if.what_if_command import parse_timeouts


def test_every_timeout_is_tried_once_in_ascending_order() -> None:
    assert parse_timeouts("90s, 60s,1m,1500ms") == [1_500, 60_000, 90_000]


@pytest.mark.parametrize("text", ["", "60s,", "x", "0s", "25h", "60 parsecs", "60"])
def test_usage_error_names_the_flag(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("--timeout")):
        parse_timeouts(text)
