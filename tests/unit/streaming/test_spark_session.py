"""The configuration of the Spark session and its Python workers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from namesrv_stream.errors import PrerequisiteMissing
from namesrv_stream.settings import Flag, Settings, load_settings
from namesrv_stream.streaming.spark_session import (
    pack_package,
    session_config,
    socket_dir,
    submitted_config,
)


@pytest.mark.parametrize(
    ("scratch", "expected"),
    [
        ("/srv/data/scratch", "/srv/data/scratch"),
        ("/home/Ada/data/scratch", "/tmp"),  # pyspark would look for it below /home/ada
        ("/srv/" + "long/" * 12 + "scratch", "/tmp"),  # the path of a socket has a limited length
    ],
)
def test_sockets_are_in_the_scratch_folder_unless_workers_would_not_find_them(scratch: str, expected: str) -> None:
    assert socket_dir(Path(scratch), Path("/tmp")) == Path(expected)


def test_no_socket_is_created_where_workers_would_not_find_it() -> None:
    assert socket_dir(Path("/home/Ada/scratch"), Path("/var/T")) is None


_CLUSTER = "spark://master:7077"
_JARS = ["delta-spark_4.2_2.13-4.4.0.jar", "spark-sql-kafka-0-10_2.13-4.2.0.jar"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in _JARS:
        (jars / jar).touch()
    values = {"advanced.jars.spark_dir": str(jars), "kafka.partitions": "8", "data.dir": str(tmp_path / "data")}
    return load_settings(environ={}, flags=[Flag("test", key, value) for key, value in values.items()]).settings


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")


@pytest.mark.parametrize(
    ("jar", "master", "is_used"),
    [
        ("hadoop-bare-naked-local-fs-0.1.0.jar", "local[2]", True),
        ("hadoop-bare-naked-local-fs-0.1.0.jar", _CLUSTER, False),  # workers have their own jars
        ("kafka-clients-3.9.2.jar", "local[2]", False),  # jars were downloaded before this one was required
    ],
)
def test_local_spark_creates_files_without_chmod_if_the_jar_for_it_exists(
    jar: str, master: str, is_used: bool, settings: Settings, tmp_path: Path
) -> None:
    (settings.jars.spark_dir / jar).touch()
    assert ("spark.hadoop.fs.file.impl" in session_config(settings, master, tmp_path)) is is_used


def test_local_spark_ships_no_jars_and_listens_only_on_the_loopback_address(settings: Settings, tmp_path: Path) -> None:
    config = session_config(settings, "local[2]", tmp_path)
    assert "spark.jars" not in config
    assert config["spark.driver.bindAddress"] == "127.0.0.1"
    assert config["spark.sql.shuffle.partitions"] == "2"
    assert config["spark.driver.extraClassPath"].count(".jar") == 2


def test_on_a_cluster_executors_get_the_jars_and_can_reach_the_driver(settings: Settings, tmp_path: Path) -> None:
    config = session_config(settings, _CLUSTER, tmp_path / "no folder of theirs")
    assert [Path(jar).name for jar in config["spark.jars"].split(",")] == _JARS
    assert "spark.driver.host" not in config
    assert config["spark.sql.shuffle.partitions"] == "8"
    assert config["spark.python.unix.domain.socket.dir"] == "/tmp"


def test_without_jars_the_job_does_not_start(settings: Settings, tmp_path: Path) -> None:
    nowhere = settings.jars.model_copy(update={"spark_dir": tmp_path / "nowhere"})
    with pytest.raises(PrerequisiteMissing, match="no spark-sql-kafka"):
        session_config(settings.model_copy(update={"jars": nowhere}), "local[2]", tmp_path)


@pytest.mark.usefixtures("submitted")
def test_jars_of_a_running_jvm_are_not_checked(settings: Settings, tmp_path: Path) -> None:
    nowhere = settings.jars.model_copy(update={"spark_dir": tmp_path / "nowhere"})
    config = session_config(settings.model_copy(update={"jars": nowhere}), _CLUSTER, tmp_path)
    assert not {"spark.jars", "spark.driver.extraClassPath"} & config.keys()


def test_without_spark_submit_there_is_no_submitted_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert submitted_config() == {}


def test_the_fold_can_be_imported_from_the_packed_package(tmp_path: Path) -> None:
    archive = pack_package(tmp_path)
    code = "from namesrv_stream.streaming.route_table import stateful; print(stateful.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(archive)},
        check=True,
    )
    assert done.stdout.startswith(str(archive))
