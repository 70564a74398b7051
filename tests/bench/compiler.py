"""Compiles the C code of the benchmarks, with the compiler of the ``ziglang`` wheel or with that of the machine."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).parent / "loadgen"
BUILD = Path(__file__).parents[2] / "build" / "bench"
_FLAGS = ("-O2", "-std=gnu17", "-Wall", "-Wextra", "-Werror")


class NoCompiler(Exception):
    """There is no C compiler; the text says what to do."""

    def __init__(self) -> None:
        super().__init__(
            "no C compiler: neither the Python package ziglang (`make bench` installs it) nor cc, gcc or clang on PATH"
        )


def compiler() -> list[str]:
    """Return the command of a C compiler.

    Raises:
        NoCompiler: There is no C compiler.
    """
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    raise NoCompiler


def compile_loadgen(build_dir: Path = BUILD) -> Path:
    """Compile the load generator, unless the same sources were compiled before; the first time takes half a minute.

    Returns:
        The program.

    Raises:
        NoCompiler: There is no C compiler.
        subprocess.CalledProcessError: The sources do not compile.
    """
    return _compiled(build_dir, "loadgen", (), [str(SOURCES / f"{part}.c") for part in _PARTS])


def compile_ceiling(build_dir: Path = BUILD) -> Path:
    """Compile the ceiling server, which only answers; raises as above."""
    return _compiled(build_dir, "ceiling", (), [str(SOURCES / f"{part}.c") for part in ("ceiling", "program")])


def compile_histogram(build_dir: Path = BUILD) -> Path:
    """Compile the load generator's histogram alone as a shared library, for its tests; raises as above."""
    return _compiled(build_dir, "histogram.so", ("-shared", "-fPIC"), [str(SOURCES / "histogram.c")])


def compile_preload(source: Path, build_dir: Path = BUILD) -> Path:
    """Compile one file into a library for LD_PRELOAD; raises as above."""
    return _compiled(build_dir, f"{source.stem}.so", ("-shared", "-fPIC"), [str(source)])


_PARTS = ("main", "traffic", "connection", "workload", "histogram", "program")


def _compiled(build_dir: Path, name: str, flags: Sequence[str], sources: Sequence[str]) -> Path:
    digest = hashlib.sha256()
    for path in sorted({*SOURCES.iterdir(), *map(Path, sources)}):
        digest.update(path.read_bytes())
    built = build_dir / f"{name}-{digest.hexdigest()[:12]}"
    if not built.exists():
        build_dir.mkdir(parents=True, exist_ok=True)
        unfinished = built.with_name(f"{built.name}.{os.getpid()}")
        command = [*compiler(), *_FLAGS, *flags, "-o", str(unfinished), *sources, "-lm"]
        subprocess.run(command, check=True, env=os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(build_dir / "zig")})
        unfinished.rename(built)
    return built
