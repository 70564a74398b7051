"""Compiles and runs the load generator, ``loadgen.c``."""

import hashlib
import json
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

SOURCE = Path(__file__).parent / "loadgen.c"
BUILD = Path(__file__).parents[2] / "build" / "bench"
# Seconds that a run may take beyond what it was asked for.
_GRACE_S = 30


@dataclass(frozen=True, slots=True)
class Load:
    """One run of route reads.

    Attributes:
        connections: TCP connections.
        depth: Requests outstanding on each.
        topics: Number of topics asked for, named ``prefix0`` and on.
        prefix: See ``topics``.
        seconds: Time measured.
        warm_up_s: Seconds of the same load before that.
        version: MQVersion ordinal sent; from 401 on the answer is strict JSON.
    """

    connections: int
    topics: int
    prefix: str
    depth: int = 1
    seconds: float = 5
    warm_up_s: float = 1
    version: int = 479


@dataclass(frozen=True, slots=True)
class Measured:
    """What the load generator saw; latencies in µs."""

    requests: int
    seconds: float
    qps: float
    mean_us: float
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float
    bytes_received: int
    bytes_sent: int
    errors: int
    refused: int
    last_refusal: int
    mismatched: int
    malformed: int
    disconnected: int


def compile_loadgen(build_dir: Path = BUILD) -> Path:
    """Compile it unless this version of the source was compiled before.

    Returns:
        The program.

    Raises:
        FileNotFoundError: There is no gcc.
        subprocess.CalledProcessError: It does not compile.
    """
    program = build_dir / f"loadgen-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    if not program.exists():
        build_dir.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(".unfinished")
        subprocess.run(
            ["gcc", "-O2", "-std=gnu17", "-Wall", "-Wextra", "-o", str(unfinished), str(SOURCE)],
            check=True,
        )
        unfinished.rename(program)
    return program


def run_load(program: Path, addr: str, load: Load) -> Measured:
    """Put a load on a name server.

    Args:
        program: The compiled load generator.
        addr: ``host:port`` of the name server.
        load: What to ask.

    Returns:
        What it saw, errors included.

    Raises:
        subprocess.CalledProcessError: It could not connect.
    """
    host, _, port = addr.rpartition(":")
    options = {
        "host": host,
        "port": port,
        "connections": load.connections,
        "depth": load.depth,
        "topics": load.topics,
        "prefix": load.prefix,
        "seconds": load.seconds,
        "warm-up": load.warm_up_s,
        "version": load.version,
    }
    printed = subprocess.run(
        [str(program), *(f"--{key}={value}" for key, value in options.items())],
        check=True,
        stdout=subprocess.PIPE,
        timeout=load.seconds + load.warm_up_s + _GRACE_S,
    ).stdout
    seen = json.loads(printed)
    return Measured(**{field.name: seen[field.name] for field in fields(Measured)})
