"""``spark-submit jobs/route_table.py [--conf FILE] [--set SECTION.KEY=VALUE …]``: runs the job, on any Spark master.

This is ``namesrv-stream job`` for installations that start Spark with ``spark-submit``. The options of ``spark-submit``
override the settings. ``--jars`` must name the jars in ``.jars/spark``. docs/deploy.md has the whole command.
"""

import sys

from namesrv_stream.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "job")
    sys.exit(main())
