"""Where Spark and its Python workers meet."""

from pathlib import Path

import pytest

from namesrv_stream.streaming.session import socket_dir


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
