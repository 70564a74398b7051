"""Profiles of the server under a load: a flame graph by py-spy, and the functions with most samples of their own.

``python -m tests.bench.profiles reads --svg docs`` starts the whole product and puts the load of that row on it.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.bench.compiler import compile_loadgen
from tests.bench.contenders import Contenders
from tests.bench.frames import heartbeats, registrations, route_reads, version_queries, write_frames
from tests.bench.load import Choice, Kind, Load, Stream, run_load
from tests.bench.shape import Shape

_TITLE: Final = re.compile(r'(<text id="title"[^>]*>)[^<]*(</text>)')
_LINKS: Final = 64
_WARM_UP_S: Final = 3
_SHOWN: Final = 25


def loads(home: Path) -> dict[str, Load]:
    """Return the loads that can be profiled: those of the rows, by name."""
    few, many = Shape(), Shape(topics=20_000, brokers=1_000)
    before = Kind("before", write_frames(home / "few", registrations(few)), Choice.ONCE)
    before_many = Kind("before", write_frames(home / "many", registrations(many)), Choice.ONCE)
    reads = write_frames(home / "reads", route_reads(few.topic_names))
    changed = write_frames(home / "changed", registrations(few, changes=range(1, 17)))
    unchanged = write_frames(home / "unchanged", registrations(few, stamps=range(1, 17)))
    beats = (
        Kind("904", write_frames(home / "904", heartbeats(many, _LINKS)), Choice.IN_TURN),
        Kind("322", write_frames(home / "322", version_queries(many, _LINKS)), Choice.IN_TURN),
    )

    def mixed(frames: Path) -> Load:
        kinds = (Kind("read", reads, share=0.95, has_body=True), Kind("register", frames, Choice.IN_TURN, 0.05))
        return Load((Stream(kinds, _LINKS),), before)

    return {
        "reads": Load((Stream((Kind("read", reads, has_body=True),), _LINKS),), before),
        "mixed-changed": mixed(changed),
        "mixed-unchanged": mixed(unchanged),
        "heartbeats": Load((Stream(beats, 0, depth=256),), before_many),
    }


@contextmanager
def recorded(pid: int, seconds: float, path: Path, form: str, *, native: bool = False) -> Iterator[None]:
    """Sample the threads of a process that hold the interpreter, 200 times a second; needs the right to trace it.

    Raises:
        FileNotFoundError: There is no py-spy; `make bench` installs it.
    """
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        raise FileNotFoundError("py-spy; `make bench` installs it")
    command = [
        program,
        "record",
        "--pid",
        str(pid),
        "--duration",
        f"{seconds:.0f}",
        "--rate",
        "200",
        "--gil",
        "--function",
    ]
    command += ["--format", form, "--output", str(path), *(["--native"] if native else [])]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        yield
        _, error = running.communicate(timeout=60)
    assert running.returncode == 0, error.decode()


def entitle(path: Path, title: str) -> None:
    """Give a flame graph a title instead of py-spy's command line."""
    text = path.read_text(encoding="utf-8")
    path.write_text(_TITLE.sub(rf"\g<1>{title}\g<2>", text, count=1), encoding="utf-8")


def hottest(folded: str, count: int = _SHOWN) -> list[tuple[float, str]]:
    """Return the functions with most samples of their own.

    Args:
        folded: Lines of ``frame;frame;… samples``, py-spy's raw format.
        count: Number of functions.

    Returns:
        Pairs of the share of all samples and the function, in order of decreasing share.
    """
    own: Counter[str] = Counter()
    for line in folded.splitlines():
        stack, _, samples = line.rpartition(" ")
        own[stack.rpartition(";")[2]] += int(samples)
    total = own.total()
    return [(samples / total, function) for function, samples in own.most_common(count)]


def main() -> None:
    """Profile the loads that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", nargs="+", choices=("reads", "mixed-changed", "mixed-unchanged", "heartbeats"))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--svg", type=Path, help="write flame graphs to this folder, from a second run of each load")
    parser.add_argument("--native", action="store_true", help="show C functions too; slows the server down")
    chosen = parser.parse_args()
    program = compile_loadgen()
    with TemporaryDirectory(prefix="profile-") as directory, Contenders(Path(directory)) as contenders:
        home = Path(directory)
        ours, _, _ = contenders.start_ours()
        all_loads = loads(home)
        for name in chosen.loads:
            load = replace(all_loads[name], seconds=chosen.seconds + 2, warm_up_s=_WARM_UP_S)
            forms = [("raw", home / "raw"), *([("flamegraph", chosen.svg / f"{name}.svg")] if chosen.svg else [])]
            for form, path in forms:
                with recorded(ours.server_pid, chosen.seconds + _WARM_UP_S, path, form, native=chosen.native):
                    before_s = ours.server_cpu_s()
                    seen = run_load(program, ours.addr, load)
                    used_s = ours.server_cpu_s() - before_s
                answers = {kind: round(one.per_second) for kind, one in seen.kinds.items() if kind != "before"}
                print(f"{name}: {answers} a second, server {used_s:.1f} s of processor time, errors {seen.errors}")
            if chosen.svg:
                entitle(chosen.svg / f"{name}.svg", f"{name}: where the server holds the interpreter")
            for share, function in hottest((home / "raw").read_text()):
                print(f"{share:6.1%}  {function}")


if __name__ == "__main__":
    main()
