"""Starts Java programs with RocketMQ's jars, quickly and with little memory; their output is in a given folder."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.processes import Process

JARS = Path(__file__).parents[2] / ".jars" / "rocketmq"
#: RocketMQ 4.9.7: only its broker.
JARS_4 = JARS.with_name("rocketmq4")
JAVA_SOURCES = Path(__file__).parent / "java"

# Tests start many short-lived JVMs on few cores: the second compiler and a parallel collector cost more than they gain.
_FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")


def rocketmq_jars(jars_dir: Path = JARS) -> list[Path]:
    """Return the jars of a RocketMQ release (5.3.3) and its dependencies, in a fixed order.

    Raises:
        AssertionError: The jars are missing.
    """
    jars = sorted(jars_dir.glob("*.jar"))
    assert jars, f"no jars in {jars_dir}: `make e2e` fetches them"
    return jars


def java_tool(name: str) -> str:
    """Return the path of ``java`` or ``javac``: from JAVA_HOME if it is set, otherwise from the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", name)) if home else name


def rocketmq_jvm(
    name: str,
    main_class: str,
    args: Sequence[str],
    work_dir: Path,
    *,
    heap_mb: int,
    log_level: str = "WARN",
    properties: Mapping[str, str] | None = None,
    extra_classes: Path | None = None,
    piped: bool = False,
    fast_start: bool = True,
    jars_dir: Path = JARS,
    jvm_flags: Sequence[str] = (),
) -> Process:
    """Describe a JVM that runs a class of RocketMQ or of this project.

    Args:
        name: Name for messages and for the log file.
        main_class: Class with the entry point.
        args: Its arguments.
        work_dir: Its home directory and its RocketMQ home; contains the log.
        heap_mb: Maximum heap in MiB.
        log_level: RocketMQ's log level; its log goes to the same file as its output.
        properties: System properties.
        extra_classes: Directory of further classes.
        piped: See `Process`.
        fast_start: Compile quickly, and use a collector that needs no threads. Otherwise the JVM chooses.
        jars_dir: Directory of the release's jars.
        jvm_flags: Further flags of the JVM.

    Returns:
        The process, not started.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    system = {
        "user.home": str(work_dir),
        "rocketmq.home.dir": str(work_dir),
        # By default, every server generates a self-signed certificate when it starts, which takes a second.
        "tls.server.mode": "disabled",
        "rmq.logback.configurationFile": str(JAVA_SOURCES / "logback.xml"),
        "tests.log.level": log_level,
        **(properties or {}),
    }
    classpath = [*rocketmq_jars(jars_dir), *([extra_classes] if extra_classes else [])]
    return Process(
        name,
        [
            java_tool("java"),
            f"-Xmx{heap_mb}m",
            *(_FAST_START if fast_start else ()),
            *jvm_flags,
            *(f"-D{key}={value}" for key, value in system.items()),
            main_class,
            *args,
        ],
        work_dir / f"{name}.log",
        # The environment has the class path, so that lists of processes stay readable.
        env={"CLASSPATH": os.pathsep.join(map(str, classpath)), "ROCKETMQ_HOME": str(work_dir)},
        cwd=work_dir,
        piped=piped,
    )
