"""The environment of the machine does not reach a Spark with a local master, and the end of a JVM says its cause."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from namesrv_stream.jvm import foreign_variables
from tests.support.dependencies import REPOSITORY

pytestmark = [pytest.mark.spark]

_TIMEOUT_S: Final = 120
_SESSION: Final = """
import json, logging, sys
from pathlib import Path
from tests.support.kafka import settings_for
from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.streaming.spark_session import build_session

logging.basicConfig(level="INFO")
try:
    spark = build_session(settings_for(Path(sys.argv[1]), streaming__driver_memory=sys.argv[2]))
except NamesrvStreamError as error:
    sys.exit(str(error))
java = spark.sparkContext._jvm
print(json.dumps({
    "rows": spark.sparkContext.parallelize([1]).map(lambda number: number + 1).collect(),
    "file system": java.org.apache.hadoop.fs.FileSystem.get(spark.sparkContext._jsc.hadoopConfiguration()).getScheme(),
    "foreign": java.System.getProperty("foreign"),
    "local": java.System.getenv("SPARK_LOCAL_DIRS"),
}))
"""
#: Runs a command on a machine whose name has no address, for a user without an entry in passwd. $0: nsswitch.conf.
_BARE_MACHINE: Final = (
    'mount --bind /dev/null /etc/passwd && mount --bind "$0" /etc/nsswitch.conf && '
    'hostname no-such-host.invalid && exec "$@"'
)


def _run(folder: Path, environ: dict[str, str], memory: str) -> subprocess.CompletedProcess[str]:
    names = folder / "nsswitch.conf"
    names.write_text("passwd: files\nhosts: files\n")
    bare = ["unshare", "--map-root-user", "--mount", "--uts", "sh", "-c", _BARE_MACHINE, str(names)]
    may_be_bare = subprocess.run([*bare, "true"], capture_output=True, check=False).returncode == 0
    return subprocess.run(
        [*(bare if may_be_bare else []), sys.executable, "-c", _SESSION, str(folder / "data"), memory],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        cwd=REPOSITORY,
        env=os.environ | environ,
        check=False,
    )


def test_spark_on_one_machine_starts_in_any_environment(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:9</value></property></configuration>"
    )
    (tmp_path / "spark-env.sh").write_text("exit 1\n")
    bad = {
        "SPARK_HOME": "/nowhere",
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_LOCAL_DIRS": "/proc/nowhere",
        "SPARK_MASTER_PORT": "tcp://10.0.0.1:7077",
        "HADOOP_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": "--master yarn",
        "PYSPARK_PYTHON": "/nowhere/python",
        "JAVA_TOOL_OPTIONS": "-Dforeign=yes",
        "_JAVA_OPTIONS": "-Xmx8m",
        "JDK_JAVA_OPTIONS": "-XX:NoSuchOption",
    }
    ended = _run(tmp_path, bad, "512m")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "rows": [2],
        "file system": "file",
        "foreign": None,
        "local": None,
    }
    (names,) = re.findall(r"ignored variables of other programs names=(\S+)", ended.stderr)
    assert set(foreign_variables(bad)) <= set(names.split(","))  # this machine may have more


def test_the_cause_is_reported_if_the_jvm_does_not_start(tmp_path: Path) -> None:
    ended = _run(tmp_path, {}, "999999g")
    assert ended.returncode == 1
    (reason,) = (line for line in ended.stderr.splitlines() if line.startswith("Spark's JVM ended at its start: "))
    assert "Could not reserve enough space" in reason
