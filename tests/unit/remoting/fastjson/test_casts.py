"""fastjson's casts of values with another type than their property."""

import pytest

from namesrv_stream.remoting.fastjson.conversion import as_boolean, as_integer, as_text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("7.0", 7),
        ("007", 7),
        (7.9, 7),
        (-7.9, -7),
        (True, 1),
        (2**31 - 1, 2**31 - 1),
        (None, None),
        ("", None),
        ("null", None),
    ],
)
def test_an_integer_is_cast(value: object, expected: int | None) -> None:
    assert as_integer(value, 32) == expected


@pytest.mark.parametrize(
    "value", ["x", "1_000", "\uff11", " 7", "0x7", "7.5", "9" * 33, [], {}, 2**31, 1e300, "2147483648"]
)
def test_invalid_integer_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"is not a number|does not fit 32 bits"):
        as_integer(value, 32)


def test_a_long_has_64_bits() -> None:
    assert as_integer(2**63 - 1, 64) == 2**63 - 1
    with pytest.raises(ValueError, match="64 bits"):
        as_integer(2**63, 64)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a", "a"), ("", ""), (None, None), (7, "7"), (1.5, "1.5"), (True, "true"), (False, "false")],
)
def test_a_text_is_cast(value: object, expected: str | None) -> None:
    assert as_text(value) == expected


@pytest.mark.parametrize("value", [[], {}, ["a"]])
def test_container_is_not_cast_to_text(value: object) -> None:
    with pytest.raises(ValueError, match="is not a string"):
        as_text(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        ("TRUE", True),
        ("y", True),
        (1, True),
        ("1", True),
        (False, False),
        ("f", False),
        (0, False),
        (2, False),
        ("", None),
        ("null", None),
        (None, None),
    ],
)
def test_boolean_is_cast(value: object, expected: bool | None) -> None:
    assert as_boolean(value) is expected


@pytest.mark.parametrize("value", ["yes", [], {}])
def test_invalid_boolean_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="neither"):
        as_boolean(value)
