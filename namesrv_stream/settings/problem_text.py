"""What is wrong with a value, in the words of these settings rather than in pydantic's."""

from typing import Final

from pydantic_core import ErrorDetails

_WHOLE_NUMBER: Final = "expected a whole number"
_NUMBER: Final = "expected a number"
_TRUTH: Final = "expected true or false"
#: pydantic's type of a problem → its text, with the limits that pydantic names.
_TEXTS: Final = {
    "int_parsing": _WHOLE_NUMBER,
    "int_type": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "bool_parsing": _TRUTH,
    "bool_type": _TRUTH,
    "string_type": "expected text",
    "path_type": "expected a path",
    "model_type": "expected a section with keys",
    "literal_error": "expected {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must have at least {min_length} character(s)",
    "too_short": "must have at least {min_length} value(s)",
}


def problem_text(problem: ErrorDetails) -> str:
    """What would be right: ``expected a whole number``, ``must be at most 65535``."""
    text = _TEXTS.get(problem["type"])
    if text is None:
        return problem["msg"].removeprefix("Value error, ")
    return text.format(**problem.get("ctx", {}))
