"""What must be on the machine besides this package: a Java 17 and the jars that ``make setup`` fetches.

Checked before anything is started, so that what is missing is named at once with how to get it.
(`conf/check-prerequisites` asks the same before there is a virtual environment, for the tools that set-up needs.)
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from namesrv_stream.errors import PrerequisiteMissing

JAVA_MAJOR: Final = 17  # Spark 4.2 needs 17 or later; 17 is the one this project is tested with

_JAVA_REMEDY: Final = (
    "install a Java 17 JDK (Debian, Ubuntu: apt install openjdk-17-jdk-headless; Fedora: dnf install"
    " java-17-openjdk-devel; macOS: brew install openjdk@17) and put it on PATH, or set JAVA_HOME to it"
)
_JARS_REMEDY: Final = "run `make setup` in the checkout, or point {key} at a folder with the jars of {pom}"


def find_java(environ: Mapping[str, str] | None = None) -> Path:
    """The ``java`` to run: that of JAVA_HOME if set, else the first on PATH.

    Returns:
        Absolute path of the executable; its version has been asked (about 50 ms).

    Raises:
        PrerequisiteMissing: There is none, or it is not a Java 17.
    """
    environ = os.environ if environ is None else environ
    java_home = environ.get("JAVA_HOME", "")
    if java_home:
        java = Path(java_home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise PrerequisiteMissing(f"JAVA_HOME={java_home} holds no bin/java", _JAVA_REMEDY)
    else:
        found = shutil.which("java", path=environ.get("PATH", ""))
        if found is None:
            raise PrerequisiteMissing("no java on PATH and JAVA_HOME is not set", _JAVA_REMEDY)
        java = Path(found)
    major = _java_major(java)
    if major != JAVA_MAJOR:
        shown = "an unknown version" if major is None else f"Java {major}"
        raise PrerequisiteMissing(f"{java} is {shown}, not Java {JAVA_MAJOR}", _JAVA_REMEDY)
    return java.absolute()


def _java_major(java: Path) -> int | None:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java_major(answer.stderr + answer.stdout)


def parse_java_major(version_text: str) -> int | None:
    """The major version in what ``java -version`` prints; 8 for ``1.8.0``, None if there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match.group(1)) if match else None


def require_jars(folder: Path, needed: str, key: str, pom: str) -> None:
    """Check that ``folder`` holds the jars of one pom file.

    Args:
        folder: Where they should be.
        needed: Glob of one jar that must be among them, for example ``kafka_2.13-*.jar``.
        key: Setting that names the folder.
        pom: The pom file that lists them, relative to the checkout.

    Raises:
        PrerequisiteMissing: The folder or that jar is absent.
    """
    if not any(folder.glob(needed)):
        raise PrerequisiteMissing(f"no {needed} in {folder}", _JARS_REMEDY.format(key=key, pom=pom))


class Jars(NamedTuple):
    """The jars of one of the pom files.

    Attributes:
        name: For people.
        folder: Where they should be.
        needed: Globs of those that must be among them.
        key: Setting that names the folder.
        pom: The pom file that lists them, relative to the checkout.
    """

    name: str
    folder: Path
    needed: tuple[str, ...]
    key: str
    pom: str

    def require(self) -> None:
        """Check that they are there.

        Raises:
            PrerequisiteMissing: One is not.
        """
        for needed in self.needed:
            require_jars(self.folder, needed, self.key, self.pom)


def spark_jars(folder: Path) -> Jars:
    """Those of the job and the history."""
    needed = ("spark-sql-kafka-*.jar", "delta-spark_*.jar")
    return Jars("Spark's jars", folder, needed, "advanced.jars.spark_dir", "conf/jars/pom.xml")


def kafka_jars(folder: Path) -> Jars:
    """Those of the embedded Kafka."""
    return Jars("Kafka's jars", folder, ("kafka_2.13-*.jar",), "advanced.jars.kafka_dir", "conf/kafka/pom.xml")
