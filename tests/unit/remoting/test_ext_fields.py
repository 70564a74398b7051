from dataclasses import dataclass

import pytest

from namesrv_stream.remoting.ext_fields import CommandCustomHeader, boolean, integer, long, text, wire_fields


@dataclass(frozen=True, slots=True)
class SampleHeader(CommandCustomHeader):
    name: str | None = text("aName")
    count: int | None = integer("aCount")
    size: int | None = long("aSize")
    wanted: bool | None = boolean("isWanted")
    plain_count: int = integer("plainCount", default=0, primitive=True)
    plain_size: int = long("plainSize", default=0, primitive=True)
    plain_wanted: bool = boolean("plainWanted", default=False, primitive=True)
    quietly_wanted: bool = boolean("quietlyWanted", default=False)


FULL = SampleHeader("n", 1, 2, True, 3, 4, True, True)
FULL_EXT_FIELDS = {
    "aName": "n",
    "aCount": "1",
    "aSize": "2",
    "isWanted": "true",
    "plainCount": "3",
    "plainSize": "4",
    "plainWanted": "true",
    "quietlyWanted": "true",
}


def test_every_field_has_its_name_on_the_wire() -> None:
    assert SampleHeader.from_ext_fields(FULL_EXT_FIELDS) == FULL
    assert FULL.to_ext_fields() == FULL_EXT_FIELDS


@pytest.mark.parametrize("ext_fields", [None, {}, {"unknown": "x"}])
def test_absent_fields_are_at_their_defaults(ext_fields: dict[str, str] | None) -> None:
    assert SampleHeader.from_ext_fields(ext_fields) == SampleHeader()


def test_only_primitives_are_written_at_their_defaults() -> None:
    assert SampleHeader().to_ext_fields() == {"plainCount": "0", "plainSize": "0", "plainWanted": "false"}


def test_a_boxed_false_is_written() -> None:
    assert SampleHeader(wanted=False).to_ext_fields()["isWanted"] == "false"


@pytest.mark.parametrize(
    ("written", "count", "size"),
    [
        ("2147483647", 2147483647, 2147483647),
        ("2147483648", None, 2147483648),
        ("-2147483648", -2147483648, -2147483648),
        ("-2147483649", None, -2147483649),
        ("9223372036854775807", None, 9223372036854775807),
        ("9223372036854775808", None, None),
        ("-9223372036854775808", None, -9223372036854775808),
        ("+007", 7, 7),
        ("", None, None),
        ("-", None, None),
        (" 1", None, None),
        ("1 ", None, None),
        ("1\n", None, None),
        ("1.0", None, None),
        ("1_000", None, None),
        ("0x1", None, None),
        ("null", None, None),
        ("9" * 10_000, None, None),
    ],
)
def test_numbers_are_parsed_as_java_does(written: str, count: int | None, size: int | None) -> None:
    header = SampleHeader.from_ext_fields({"aCount": written, "aSize": written})

    assert (header.count, header.size) == (count, size)


def test_a_primitive_that_cannot_be_parsed_stays_at_its_default() -> None:
    assert SampleHeader.from_ext_fields({"plainCount": "many", "plainSize": "large"}) == SampleHeader()


@pytest.mark.parametrize(
    ("written", "wanted"), [("true", True), ("TRUE", True), ("True", True), ("1", False), ("yes", False), ("", False)]
)
def test_only_true_is_read_as_true(written: str, wanted: bool) -> None:
    assert SampleHeader.from_ext_fields({"isWanted": written}).wanted is wanted


def test_an_empty_text_is_not_absent() -> None:
    assert SampleHeader.from_ext_fields({"aName": ""}).name == ""


def test_wire_names_of_a_header_can_be_listed() -> None:
    assert [field.wire_name for _, field in wire_fields(SampleHeader)] == list(FULL_EXT_FIELDS)
