"""Runs the command line for ``python -m namesrv_stream``."""

import sys

from namesrv_stream.cli import main

if __name__ == "__main__":
    sys.exit(main())
