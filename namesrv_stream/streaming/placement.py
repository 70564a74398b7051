"""Where Spark's parts run: in one process here, or on a cluster whose executors need what only the driver has."""

import os
import re
import zipfile
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext

import namesrv_stream

_ONE_PROCESS: Final = re.compile(r"local(\[[^\]]*\])?")  # not local-cluster[…], whose executors are processes


def is_one_process(master: str) -> bool:
    """Whether Spark's driver does all the work itself."""
    return _ONE_PROCESS.fullmatch(master) is not None


def is_submitted() -> bool:
    """Whether ``spark-submit`` started this process, and the JVM before it.

    Source: pyspark 4.2, java_gateway.py: launch_gateway.
    """
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_config() -> dict[str, str]:
    """What ``spark-submit`` was told by flags, ``--conf`` and ``spark-defaults.conf``; nothing without it."""
    if not is_submitted():
        return {}
    SparkContext._ensure_initialized()  # noqa: SLF001 (else SparkConf does not ask the JVM)
    return dict(SparkConf().getAll())


def pack_package(folder: Path) -> Path:
    """Write this package's modules as a zip that Python can import from; blocks for some 100 ms.

    Executors get it from the driver: states that two versions of the fold made by turns would be nobody's.
    """
    package = Path(namesrv_stream.__file__).parent
    archive = folder / "namesrv_stream.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for module in sorted(package.rglob("*.py")):
            target.write(module, module.relative_to(package.parent))
    return archive
