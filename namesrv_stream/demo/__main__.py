"""``python -m namesrv_stream.demo``, which ``make demo`` runs."""

import sys

from namesrv_stream.demo.command import main

if __name__ == "__main__":
    sys.exit(main())
