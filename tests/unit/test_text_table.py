"""Tables that fit the terminal, and counts in sentences."""

import io

import pytest
from rich.console import Console

from namesrv_stream.text_table import TextColumn, counted, plural, table_lines, times


def test_a_noun_agrees_with_its_number() -> None:
    assert [counted(n, "file") for n in (0, 1, 2, 1024)] == ["0 files", "1 file", "2 files", "1,024 files"]
    assert counted(2, "broker process", "broker processes") == "2 broker processes"
    assert plural(1, "was", "were") == "was"


def test_number_of_times_is_written_in_words() -> None:
    assert [times(n) for n in (1, 2)] == ["once", "2 times"]


COLUMNS = (
    TextColumn("broker"),
    TextColumn("age", "right"),
    TextColumn("reason", is_text=True),
    TextColumn("address", is_optional=True),
    TextColumn("offset", "right", is_optional=True),
)
ROW = ("broker-a", "12.3 s", "not heard for 27269 ms of observed time", "192.168.1.5:10911", "1234")


def _lines(width: int | None) -> list[str]:
    out = io.StringIO()
    for part in table_lines(COLUMNS, [ROW], width):
        Console(file=out, width=10_000).print(part, crop=False)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [None, 200])
def test_everything_is_shown_if_there_is_room(width: int | None) -> None:
    head, row = _lines(width)
    assert head.split() == ["broker", "age", "reason", "address", "offset"]
    assert all(cell in row for cell in ROW)


@pytest.mark.parametrize("width", range(30, 90))
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in _lines(width)[:2])


def test_the_text_is_shortened_before_columns_are_left_out() -> None:
    head, row = _lines(70)
    assert "offset" in head
    assert "not heard for 27269 ms o…" in row


def test_columns_that_are_left_out_are_named() -> None:
    head, row, below = _lines(40)
    assert head.split() == ["broker", "age", "reason"]
    assert row.startswith("broker-a")
    assert below == "--wide also shows: address, offset"


def test_columns_that_are_not_optional_stay_however_narrow_the_terminal_is() -> None:
    assert "broker-a  12.3 s" in _lines(5)[1]
