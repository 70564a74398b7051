"""Runs `up` with the real Kafka and with fake processes in place of the job and the server.

``python -m tests.support.up_with_fake_parts FLAG…`` accepts the flags of `up`; environment variables FAKE_SERVE and
FAKE_JOB set their behaviour: ``good`` (the default), ``exit-2``, ``exit-1``, ``stubborn`` (ignores SIGTERM).
Each fake process starts a child, as the job starts a JVM, and writes its name to DATA/ends when it stops.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from namesrv_stream.processes import die_with_parent, write_run_file
from namesrv_stream.settings import load_settings, parse_set_flag
from namesrv_stream.up import launcher as up_main


def _command_line(command: str, effective: Path) -> Sequence[str | Path]:
    if command == "kafka":
        return up_main.command_line(command, effective)
    return (sys.executable, "-m", "tests.support.up_with_fake_parts", "--fake-part", command, str(effective))


def _fake_part(command: str, effective: Path) -> None:
    die_with_parent()
    settings = load_settings(effective).settings
    behaviour = os.environ.get(f"FAKE_{command.upper()}", "good")
    if behaviour.startswith("exit-"):
        print("error: settings: x.y: will not do", flush=True)
        sys.exit(int(behaviour.removeprefix("exit-")))
    subprocess.Popen(["/bin/sleep", "600"], process_group=0)  # it is not stopped, as a JVM might not be

    def end(_signal: int, _frame: FrameType | None) -> None:
        with (settings.data.dir / "ends").open("a") as ends:
            ends.write(f"{command}\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "stubborn" else end)
    address = f"{settings.remoting.listen_host}:{settings.remoting.listen_port}"
    facts = {"remoting": address, "http": f"{settings.http.listen_host}:{settings.http.listen_port}"}
    write_run_file(settings.data.run_dir / f"{command}.json", facts if command == "serve" else {})
    time.sleep(600)


def main(arguments: list[str]) -> int:
    """Run `up`, or a fake part that it started."""
    if arguments[0] == "--fake-part":
        _fake_part(arguments[1], Path(arguments[2]))
        return 0
    return up_main.run_up(load_settings(flags=[parse_set_flag(text) for text in arguments]).settings, _command_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
