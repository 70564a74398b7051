"""``spark-submit jobs/history.py [--once] [--conf FILE] [--set SECTION.KEY=VALUE …]``: the history tables.

It is the same process as ``namesrv-stream history-job``, for installations that start Spark with ``spark-submit``, for
example from a scheduler with ``--once``. The options of ``spark-submit`` override the settings. ``--jars`` must name
the jars in ``.jars/spark``. docs/deploy.md has the whole command.
"""

import argparse
import sys
from pathlib import Path

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.logs import configure_logging, report_error
from namesrv_stream.settings import load_settings, parse_set_flag
from namesrv_stream.streaming.history.history_job import run_history


def main(arguments: list[str]) -> int:
    """Run until a signal, or once. Known errors are reported on one line, and determine the exit code."""
    parser = argparse.ArgumentParser(prog="history.py", description="Writes the history tables.")
    parser.add_argument("--once", action="store_true", help="process the pending records and exit")
    parser.add_argument("--conf", type=Path, help="configuration file (TOML)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="one setting")
    options = parser.parse_args(arguments)
    try:
        settings = load_settings(options.conf, flags=[parse_set_flag(text) for text in options.set]).settings
        configure_logging(settings.logs.level, settings.logs.format)
        return run_history(settings, once=options.once)
    except NamesrvStreamError as error:
        report_error(str(error))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
