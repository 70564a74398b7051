"""What the history process asks of its JVM as a process."""

import fcntl
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from namesrv_stream.streaming.jvm import is_gone, lock_by_jvm

pytestmark = [pytest.mark.spark]


def test_a_lock_of_the_jvm_is_one_for_every_other_process(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = lock_by_jvm(spark, path)
    with path.open("r+") as file:
        with pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.release()
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_jvm_that_answers_is_not_gone(spark: SparkSession) -> None:
    assert not is_gone(spark)
