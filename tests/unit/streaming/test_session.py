"""Where Spark and its Python workers meet."""

from pathlib import Path

import pytest

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.session import session_config, socket_dir


@pytest.mark.parametrize(
    ("scratch", "expected"),
    [
        ("/srv/data/scratch", "/srv/data/scratch"),
        ("/home/Ada/data/scratch", "/tmp"),  # pyspark would look for it below /home/ada
        ("/srv/" + "long/" * 12 + "scratch", "/tmp"),  # sockets' paths have a limit
    ],
)
def test_sockets_are_in_the_scratch_folder_unless_workers_would_not_find_them(scratch: str, expected: str) -> None:
    assert socket_dir(Path(scratch), Path("/tmp")) == Path(expected)


def test_where_workers_would_find_no_socket_there_is_none() -> None:
    assert socket_dir(Path("/home/Ada/scratch"), Path("/var/T")) is None


@pytest.mark.parametrize(
    ("jar", "master", "is_used"),
    [
        ("hadoop-bare-naked-local-fs-0.1.0.jar", "local[2]", True),
        ("hadoop-bare-naked-local-fs-0.1.0.jar", "spark://host:7077", False),  # workers have jars of their own
        ("kafka-clients-3.9.2.jar", "local[2]", False),  # fetched before there was one
    ],
)
def test_files_are_made_without_chmod_where_the_jar_for_it_is_there(
    jar: str, master: str, is_used: bool, tmp_path: Path
) -> None:
    (tmp_path / jar).touch()
    settings = Settings().model_copy(update={"jars": Settings().jars.model_copy(update={"spark_dir": str(tmp_path)})})
    assert ("spark.hadoop.fs.file.impl" in session_config(settings, master, tmp_path)) is is_used
