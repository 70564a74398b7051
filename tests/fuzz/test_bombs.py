"""The most expensive single requests: bounded memory and time, and no event that is too large for the log."""

import json
import subprocess
import sys

import pytest

from namesrv_stream.processor.register_body import MAX_EVENT_BYTES
from namesrv_stream.remoting.frame import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from tests.fuzz.bombs import BOMBS
from tests.fuzz.hostile import is_long
from tests.support.kafka import REPOSITORY

#: Memory beyond that of a process that already has the frame. docs/limits.md has the largest measured value.
_MAX_GROWTH_MIB = 512
#: This only excludes a hang; the slowest request takes 2 s on an idle core.
_MAX_SECONDS = 60
_ALWAYS = (
    "zlib 1000:1, 16 MiB of zeros",
    "zlib that announces two thousand million topics",
    "zlib full of topics",
    "100,000 brackets",
    "a frame of brackets",
    "1e999999",
    "one topic name that an error quotes",
    "references to a long text",
    "references to a long list",
    "the largest permitted text in the dialect",
    "a frame that is all header",
    "a header of numbers",
    "a binary header of empty entries",
    "a long broker name",
    "properties of a long key",
)


def _names() -> list[str]:
    return list(BOMBS) if is_long() else list(_ALWAYS)


@pytest.fixture(scope="module")
def exploded() -> dict[str, dict[str, object]]:
    """The outcome of each expensive request."""
    command = [sys.executable, "-m", "tests.fuzz.bombs", *_names()]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {line["bomb"]: line for line in map(json.loads, run.stdout.splitlines())}


@pytest.mark.parametrize("name", _names())
def test_expensive_request_is_answered_or_closed_within_bounded_memory_and_time(
    exploded: dict[str, dict[str, object]], name: str
) -> None:
    result = exploded[name]

    assert str(result["outcome"]).startswith(("code ", "HeaderDecodeError")), result
    assert int(str(result["grown_mib"])) < _MAX_GROWTH_MIB, result
    assert float(str(result["seconds"])) < _MAX_SECONDS, result
    assert int(str(result["accepted_bytes"])) <= MAX_EVENT_BYTES + 6 * MAX_HEADER_BYTES, result
    assert int(str(result["answer_bytes"])) < MAX_FRAME_BYTES, result
