"""The KV table in the log output of a server."""

import logging

import pytest

from namesrv_stream.server.main import log_kv_table


def test_the_size_of_the_table_is_logged_before_a_line_for_every_entry(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "namesrv_stream")
    log_kv_table({"B": {"k": "v"}, "A": {"y": "2", "x": "1"}, "empty": {}})
    assert caplog.messages == [
        "kv table namespaces=3 entries=3",
        "kv namespace=A key=x chars=1 value=1",
        "kv namespace=A key=y chars=1 value=2",
        "kv namespace=B key=k chars=1 value=v",
    ]


def test_an_empty_table_is_logged_as_zero_entries(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "namesrv_stream")
    log_kv_table({})
    assert caplog.messages == ["kv table namespaces=0 entries=0"]


def test_a_long_value_is_cut_and_a_line_break_is_escaped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "namesrv_stream")
    log_kv_table({"A": {"k\n": "v" * 5000}})
    line = caplog.messages[1]
    assert line.startswith("kv namespace=A key=k\\n chars=5000 value=vvv")
    assert line.endswith("…")
    assert len(line) < 300


def test_more_entries_than_fit_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "namesrv_stream")
    log_kv_table({"A": {f"k{i}": "v" for i in range(5)}}, max_entries=2)
    assert caplog.messages[-1] == "kv table has more entries, not printed count=3"
    assert len(caplog.messages) == 4
