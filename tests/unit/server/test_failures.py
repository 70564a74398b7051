"""A server exits if one of its tasks fails, and logs the reason."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.server.start.process import exit_code_of
from tests.support.kafka import REPOSITORY

_FAILING = """
import logging, sys
from pathlib import Path
from namesrv_stream.server import main
from tests.support.kafka import settings_for

async def no_log(*_):
    return False, 0

class Failing(main._Server):
    async def _beat(self, gateway, figures):
        raise {error}

main.open_log = no_log
main._Server = Failing
logging.basicConfig()
sys.exit(main.serve(settings_for(Path(sys.argv[1]))))
"""


def test_an_error_of_the_product_is_raised_from_nested_exception_groups() -> None:
    error = ConfigError("file", "key", "reason")
    with pytest.raises(ConfigError, match="reason"):
        exit_code_of(BaseExceptionGroup("parts", [ExceptionGroup("inner", [error])]))


def test_a_bug_is_logged_and_gives_exit_code_1(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        assert exit_code_of(BaseExceptionGroup("parts", [ValueError("a bug")])) == 1
    assert "a bug" in caplog.text


def test_a_server_exits_with_an_error_if_one_of_its_tasks_fails(tmp_path: Path) -> None:
    code = _FAILING.format(error="ValueError('a bug')")
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY, timeout=60, capture_output=True, check=False
    )
    assert run.returncode == 1
    assert b"a part of it failed" in run.stderr
    assert b"a bug" in run.stderr
