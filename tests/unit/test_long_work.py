"""The progress of long work: a line that changes on a terminal, a line every 10 s otherwise."""

import io

from namesrv_stream.long_work import LongWork


class _Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_log_gets_a_line_each_10_s_with_percentage_rate_and_time_left() -> None:
    clock, lines = _Clock(), list[str]()
    with LongWork("records", print_line=lines.append, clock=clock) as work:
        for second in range(31):
            clock.now_s = float(second)
            work.show("partition 0", second * 100, 10_000)
    assert lines == [
        "partition 0: 10%, 1,000 of 10,000 records, 100/s, 1 min 30 s left",
        "partition 0: 20%, 2,000 of 10,000 records, 100/s, 1 min 20 s left",
        "partition 0: 30%, 3,000 of 10,000 records, 100/s, 1 min 10 s left",
    ]


def test_short_work_prints_nothing() -> None:
    lines: list[str] = []
    with LongWork("records", print_line=lines.append, clock=_Clock()) as work:
        work.show("partition 0", 0, 5)
        work.show("partition 0", 5, 5)
    assert lines == []


def test_the_rate_belongs_to_the_step() -> None:
    clock, lines = _Clock(), list[str]()
    with LongWork("records", print_line=lines.append, clock=clock) as work:
        work.show("partition 0", 0, 1_000_000)
        clock.now_s = 10.0
        work.show("partition 0", 1_000_000, 1_000_000)
        work.show("partition 1", 0, 200)
        clock.now_s = 20.0
        work.show("partition 1", 100, 200)
        clock.now_s = 30.0
        work.show("partition 1", 100, 200)
    assert lines[1:] == [
        "partition 1: 50%, 100 of 200 records, 10/s, 10.0 s left",
        "partition 1: 50%, 100 of 200 records, 5/s, 20.0 s left",
    ]


def test_a_terminal_shows_one_line_that_is_removed_at_the_end() -> None:
    clock, terminal, lines = _Clock(), io.StringIO(), list[str]()
    with LongWork("records", terminal, lines.append, clock) as work:
        for tenth in range(6):
            clock.now_s = tenth / 10
            work.show("partition 0", tenth, 10)
    shown = terminal.getvalue().split("\r\x1b[K")
    assert shown[1:-1] == [
        "partition 0: 20%, 2 of 10 records, 10/s, 800 ms left",
        "partition 0: 40%, 4 of 10 records, 10/s, 600 ms left",
    ]
    assert (shown[-1], lines) == ("", [])
