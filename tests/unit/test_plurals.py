"""Counts in sentences."""

from namesrv_stream.plurals import counted, plural, times


def test_a_noun_agrees_with_its_number() -> None:
    assert [counted(n, "file") for n in (0, 1, 2, 1024)] == ["0 files", "1 file", "2 files", "1,024 files"]
    assert counted(2, "broker process", "broker processes") == "2 broker processes"
    assert plural(1, "was", "were") == "was"


def test_how_often() -> None:
    assert [times(n) for n in (1, 2)] == ["once", "2 times"]
