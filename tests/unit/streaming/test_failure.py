"""One line says why a query failed."""

from namesrv_stream.streaming.failure import failure_line

_QUERY = """
=== Streaming Query ===
Identifier: route_table [id = 1, runId = 2]
Current State: ACTIVE

Logical Plan:
WriteToMicroBatchDataSource
+- Project
   -----
"""


def test_what_python_raised_is_the_reason() -> None:
    text = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function. Reason: Traceback
  File "clientserver.py", line 617, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
_internal.CommitFailedError: Transaction failed
 SQLSTATE: 39000"""
    assert failure_line(text + _QUERY) == "_internal.CommitFailedError: Transaction failed"


def test_what_spark_says_first_is_the_reason_without_its_preamble() -> None:
    text = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Cannot fetch offset 9 SQLSTATE: XXKST"
    assert failure_line(text + _QUERY) == "Cannot fetch offset 9 SQLSTATE: XXKST"


def test_lines_without_a_word_are_no_reason() -> None:
    assert failure_line("-----\nout of memory\n-----") == "out of memory"
    assert failure_line("-----") == "Spark gave no reason"
