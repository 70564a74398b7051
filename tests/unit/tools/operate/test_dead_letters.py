"""Refused records as a table and as JSON."""

import pytest

from namesrv_stream.tools.operate.refused_records import RefusedRecord, RefusedRecords, print_refused, to_json

_AT_MS = 1_795_534_810_049  # 2026-11-24 15:40:10.049Z
_LONG = "x" * 500


def _refused(content: dict[str, object], item: int | None = None, reason: str = "not JSON") -> RefusedRecord:
    return RefusedRecord(_AT_MS, 1, 42, item, reason, content)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"value": {"kind": "broker_live"}}, '{"kind":"broker_live"}'),
        ({"value_text": "{nojson"}, "{nojson"),
        ({"value_text": "a\x1b[2J\nb"}, r"a\x1b[2J\nb"),
        ({"value_base64": "//4A"}, "base64: //4A"),
        ({"value_bytes": 20_000_000}, "20,000,000 bytes, in the events topic only"),
    ],
)
def test_a_row_has_place_reason_and_content(
    capsys: pytest.CaptureFixture[str], content: dict[str, object], text: str
) -> None:
    print_refused(RefusedRecords([_refused(content, item=3, reason="no\nreason")], 0), wide=False)
    title, row = capsys.readouterr().out.splitlines()
    assert title.split() == ["TIME", "RECORD", "REASON", "CONTENT"]
    assert row.split("  ")[:2] == ["2026-11-24 15:40:10Z", "1:42 item 3"]
    assert r"no\nreason" in row
    assert row.rstrip().endswith(text)


def test_long_texts_are_whole_with_wide_only(capsys: pytest.CaptureFixture[str]) -> None:
    refused = RefusedRecords([_refused({"value_text": _LONG})], 0)
    print_refused(refused, wide=False)
    assert _LONG not in capsys.readouterr().out
    print_refused(refused, wide=True)
    assert _LONG in capsys.readouterr().out


def test_older_records_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    for older, text in ((0, ""), (1, "1 older record is not shown"), (1_200, "1,200 older records are not shown")):
        print_refused(RefusedRecords([_refused({"value": 1})], older), wide=False)
        assert capsys.readouterr().err.startswith(text)


def test_json_has_every_field() -> None:
    assert to_json([_refused({"value_text": "{", "value_bytes": 9})]) == [
        {
            "at": "2026-11-24T15:40:10.049Z",
            "at_ms": _AT_MS,
            "partition": 1,
            "offset": 42,
            "item": None,
            "reason": "not JSON",
            "value_text": "{",
            "value_bytes": 9,
        }
    ]
