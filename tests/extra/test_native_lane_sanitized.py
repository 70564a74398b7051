"""Runs the tests of the native lane with its C code compiled with gcc's sanitizers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_SOURCES = sorted((_REPOSITORY / "namesrv_stream" / "server" / "native").glob("*.c"))
_GCC = shutil.which("gcc")


@pytest.mark.skipif(_GCC is None, reason="needs gcc, with its sanitizers")
@pytest.mark.parametrize(("sanitizers", "runtime"), [("address,undefined", "libasan.so"), ("thread", "libtsan.so")])
def test_sanitizer_finds_no_fault_in_the_native_lane(sanitizers: str, runtime: str, tmp_path: Path) -> None:
    assert _GCC is not None
    library = tmp_path / "libnative_lane.so"
    flags = ("-g", "-O1", "-std=gnu17", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    _run([_GCC, *flags, "-shared", "-fPIC", "-pthread", "-o", library, *_SOURCES])
    environ = {
        "NATIVE_LANE_LIBRARY": str(library),
        # The sanitizer must be the first library, and the interpreter is not linked with it.
        "LD_PRELOAD": _run([_GCC, f"-print-file-name={runtime}"]).strip(),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter leaks
        "TSAN_OPTIONS": "halt_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
    tests = "tests/unit/server/test_lanes.py"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "native", tests]
    assert " passed" in _run(command, **environ)


def _run(command: Sequence[str | Path], **environ: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1_200, cwd=_REPOSITORY, env=os.environ | environ
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-8_000:]
    return done.stdout
