"""The prerequisites besides this package: Java 17 and the jars that ``make setup`` fetches.

They are checked before anything is started, so that the user learns at once what is missing and how to get it.
(`conf/check-prerequisites` checks the tools that `make setup` needs, before there is a virtual environment.)
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from namesrv_stream.errors import PrerequisiteMissing
from namesrv_stream.jvm import jvm_environment

JAVA_MAJOR: Final = 17  # Spark 4.2 needs 17 or later; this project is tested with 17

_JAVA_REMEDY: Final = (
    "install a Java 17 JDK (Debian, Ubuntu: apt install openjdk-17-jdk-headless; Fedora: dnf install"
    " java-17-openjdk-devel; macOS: brew install openjdk@17) and put it on PATH, or set JAVA_HOME to it"
)
_JARS_REMEDY: Final = "run `make setup` in the checkout, or set {key} to a folder with the jars of {pom}"


def find_java(environ: Mapping[str, str] | None = None) -> Path:
    """Return the ``java`` to run: that of JAVA_HOME if it is set, else the first on PATH.

    Returns:
        The absolute path of the executable. Checking its version takes about 50 ms.

    Raises:
        PrerequisiteMissing: There is no Java, or the one found is not Java 17.
    """
    environ = os.environ if environ is None else environ
    java_home = environ.get("JAVA_HOME", "")
    if java_home:
        java = Path(java_home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise PrerequisiteMissing(f"JAVA_HOME={java_home} contains no bin/java", _JAVA_REMEDY)
    else:
        found = shutil.which("java", path=environ.get("PATH", ""))
        if found is None:
            raise PrerequisiteMissing("no java on PATH and JAVA_HOME is not set", _JAVA_REMEDY)
        java = Path(found)
    major = _java_major(java, jvm_environment(environ))
    if major != JAVA_MAJOR:
        shown = "an unknown version" if major is None else f"Java {major}"
        raise PrerequisiteMissing(f"{java} is {shown}, not Java {JAVA_MAJOR}", _JAVA_REMEDY)
    return java.absolute()


def _java_major(java: Path, environ: Mapping[str, str]) -> int | None:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False, env=environ
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java_major(answer.stderr + answer.stdout)


def parse_java_major(version_text: str) -> int | None:
    """Return the major version in the output of ``java -version``: 8 for ``1.8.0``; None if it contains no version."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match.group(1)) if match else None


class Jars(NamedTuple):
    """The jars of one of the pom files.

    Attributes:
        name: Name for messages.
        folder: The folder of the jars.
        needed: Globs of jars that must be among them.
        key: The setting that names the folder.
        pom: The pom file that lists them, relative to the checkout.
    """

    name: str
    folder: Path
    needed: tuple[str, ...]
    key: str
    pom: str

    def require(self) -> None:
        """Check that the needed jars exist.

        Raises:
            PrerequisiteMissing: A jar or the folder is missing.
        """
        for needed in self.needed:
            if not any(self.folder.glob(needed)):
                remedy = _JARS_REMEDY.format(key=self.key, pom=self.pom)
                raise PrerequisiteMissing(f"no {needed} in {self.folder}", remedy)


def spark_jars(folder: Path) -> Jars:
    """Return the jars of the job and the history."""
    needed = ("spark-sql-kafka-*.jar", "delta-spark_*.jar")
    return Jars("Spark's jars", folder, needed, "advanced.jars.spark_dir", "conf/jars/pom.xml")


def kafka_jars(folder: Path) -> Jars:
    """Return the jars of the embedded Kafka."""
    return Jars("Kafka's jars", folder, ("kafka_2.13-*.jar",), "advanced.jars.kafka_dir", "conf/kafka/pom.xml")
