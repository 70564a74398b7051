"""Runs the command line for ``python -m namesrv_stream`` and for the console script ``namesrv-stream``."""

import sys


def main() -> int:
    """Run the command in ``sys.argv`` and return its exit code."""
    # Each branch imports only what it needs: the parent of the server remains small.
    if sys.argv[1:2] == ["serve"]:
        from namesrv_stream.watchdog import fork_server

        code = fork_server()
        if code is not None:
            return code
    from namesrv_stream.cli import main as run_command_line

    return run_command_line()


if __name__ == "__main__":
    sys.exit(main())
