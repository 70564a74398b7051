"""``spark-submit jobs/route_table.py [--conf FILE] [--set SECTION.KEY=VALUE …]``: the fold, on any Spark master.

It is the same job as ``namesrv-stream job``, for installations that start Spark with ``spark-submit``. The options of
``spark-submit`` override the settings. ``--jars`` must name the jars in ``.jars/spark``. docs/deploy.md has the whole
command.
"""

import argparse
import sys
from pathlib import Path

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.logs import configure_logging, report_error
from namesrv_stream.settings import load_settings, parse_set_flag
from namesrv_stream.streaming.route_table.route_job import run_job


def main(arguments: list[str]) -> int:
    """Run until a signal. Known errors are reported on one line, and determine the exit code."""
    parser = argparse.ArgumentParser(prog="route_table.py", description="Folds broker events into routes.")
    parser.add_argument("--conf", type=Path, help="configuration file (TOML)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="one setting")
    options = parser.parse_args(arguments)
    try:
        settings = load_settings(options.conf, flags=[parse_set_flag(text) for text in options.set]).settings
        configure_logging(settings.logs.level, settings.logs.format)
        return run_job(settings)
    except NamesrvStreamError as error:
        report_error(str(error))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
