"""Runs ``namesrv-stream`` commands in the test's own process, like the console script but without its start-up time."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from namesrv_stream.cli import main


class Finished(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


def run_command(*arguments: str) -> Finished:
    """Run a command to its end; one at a time in a process."""
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["namesrv-stream", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main()
    finally:
        sys.argv = argv
    return Finished(code, out.getvalue(), err.getvalue())
