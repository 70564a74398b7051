"""``spark-submit jobs/history.py [--once] [--conf FILE] [--set SECTION.KEY=VALUE …]``: writes the history tables.

This is ``namesrv-stream history-job`` for installations that start Spark with ``spark-submit``, for example from a
scheduler with ``--once``. The options of ``spark-submit`` override the settings. ``--jars`` must name the jars in
``.jars/spark``. docs/deploy.md has the whole command.
"""

import sys

from namesrv_stream.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "history-job")
    sys.exit(main())
