"""The end of Spark's JVM: one line explains why a query failed, and a JVM that is starting is killed."""

import subprocess
import sys

from pyspark.errors import PySparkValueError

from namesrv_stream.errors import NamesrvStreamError
from namesrv_stream.processes import is_running
from namesrv_stream.streaming.spark_jvm import failure_line, failure_reason
from tests.support.processes import wait_until

_QUERY = """
=== Streaming Query ===
Identifier: route_table [id = 1, runId = 2]
Current State: ACTIVE

Logical Plan:
WriteToMicroBatchDataSource
+- Project
   -----
"""


def test_exception_of_python_is_the_reason() -> None:
    text = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function. Reason: Traceback
  File "clientserver.py", line 617, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
_internal.CommitFailedError: Transaction failed
 SQLSTATE: 39000"""
    assert failure_line(text + _QUERY) == "_internal.CommitFailedError: Transaction failed"


def test_first_line_of_spark_is_the_reason_without_its_preamble() -> None:
    text = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Cannot fetch offset 9 SQLSTATE: XXKST"
    assert failure_line(text + _QUERY) == "Cannot fetch offset 9 SQLSTATE: XXKST"


def test_the_innermost_cause_of_a_java_exception_is_the_reason() -> None:
    # The text of Spark 4.2 when the disk with the checkpoint was full.
    text = """An error occurred while calling o120.start.
: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileOutputStream.write(RawLocalFileSystem.java:549)
\tat org.apache.spark.sql.execution.streaming.runtime.StreamMetadata$.write(StreamMetadata.scala:82)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 40 more
"""
    assert failure_line(text) == "IOException: No space left on device"


def test_the_innermost_cause_is_the_reason_if_a_call_from_python_to_java_failed() -> None:
    # The text of Spark 4.2 when Kafka stopped during a batch, shortened.
    text = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function. Reason: \
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "conversion.py", line 539, in _collect_as_arrow
    jsocket_auth_server.getResult()
py4j.protocol.Py4JJavaError: An error occurred while calling o96.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.security.SocketAuthServer.getResult(SocketAuthServer.scala:126)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most \
recent failure: Lost task 0.0 in stage 0.0: java.util.concurrent.TimeoutException: Cannot fetch record for offset 5472

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$3(DAGScheduler.scala:3318)
Caused by: java.util.concurrent.TimeoutException: Cannot fetch record for offset 5472 in 120000 milliseconds
\tat org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer.get(KafkaDataConsumer.scala:370)

 SQLSTATE: 39000 SQLSTATE: XXKST"""
    assert failure_line(text + _QUERY) == "TimeoutException: Cannot fetch record for offset 5472 in 120000 milliseconds"


def test_the_exception_of_a_python_worker_is_the_reason_if_a_call_from_python_to_java_failed() -> None:
    text = """Return Message: Traceback (most recent call last):
py4j.protocol.Py4JJavaError: An error occurred while calling o96.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "stateful.py", line 1, in handleInputRows
ValueError: no such partition

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)"""
    assert failure_line(text + _QUERY) == "ValueError: no such partition"


def test_cause_without_a_text_is_ignored() -> None:
    text = """An error occurred while calling o1.start.
: org.apache.spark.SparkException: The query cannot start
\tat org.apache.spark.Some.method(Some.scala:1)
Caused by: java.util.concurrent.TimeoutException
\tat org.apache.spark.Other.method(Other.scala:2)
"""
    assert failure_line(text) == "SparkException: The query cannot start"


def test_the_class_of_an_exception_of_spark_is_left_out() -> None:
    assert failure_reason(PySparkValueError("bad\nCaused by: java.io.IOException: No space left")) == (
        "IOException: No space left"
    )
    assert failure_reason(OSError("bad disk")) == "OSError: bad disk"
    assert failure_reason(NamesrvStreamError("the log is another one")) == "the log is another one"


def test_lines_without_words_are_not_the_reason() -> None:
    assert failure_line("-----\nout of memory\n-----") == "out of memory"
    assert failure_line("-----") == "Spark gave no reason"


def test_a_jvm_that_is_still_starting_is_killed() -> None:
    program = """
import os, subprocess
from namesrv_stream.streaming.spark_jvm import kill_jvm
nothing = subprocess.DEVNULL
print(subprocess.Popen(["sleep", "60"], stdout=nothing, stderr=nothing).pid, flush=True)
kill_jvm(None)
os._exit(0)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    wait_until(lambda: not is_running(int(ended.stdout)), 10, "the child has been killed")
