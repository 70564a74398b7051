"""No regular expression of the package backtracks on foreign text: each takes time in proportion to the text.

The test finds the expressions in the sources, and the functions with which they are used. It makes hostile texts from
the parts of an expression: each run of parts, repeated, after what comes before it, and with an end that fails.
"""

import ast
import importlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import thread_time
from typing import Any, Final, NamedTuple

import pytest

from tests.support.callback_time import LIMIT_MS

_PACKAGE: Final = Path(__file__).parents[2] / "namesrv_stream"
_FUNCTIONS: Final = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
#: From a length at which an exponential expression is noticed, to the longest head of an HTTP request.
_LENGTHS: Final = (16, 20, 24, 32, 48, 64, *(2**power for power in range(7, 15)))
_MOST_PARTS: Final = 6
_ENDS: Final = ("", "\0", "\n")
_PARSER: Any = importlib.import_module("re._parser")


class Expression(NamedTuple):
    """An expression in the sources: where it is, and the function that is called with it."""

    place: str
    pattern: "re.Pattern[Any]"
    function: str


def _expressions() -> Iterator[Expression]:
    sources = {path: path.read_text() for path in sorted(_PACKAGE.rglob("*.py"))}
    for path, source in sources.items():
        if "import re\n" not in source:
            continue
        name = ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts)
        for statement in ast.parse(source).body:
            for node in ast.walk(statement):
                if not (isinstance(node, ast.Call) and re.fullmatch(r"re\.\w+", ast.unparse(node.func))):
                    continue
                function = ast.unparse(node.func).removeprefix("re.")
                # Constants are compiled as the source says; the module knows any other name.
                scope = vars(importlib.import_module(name))
                arguments = [] if function != "compile" else [ast.unparse(each) for each in node.args[1:]]
                text = f"re.compile({', '.join([ast.unparse(node.args[0]), *arguments])})"
                if function in ("escape",):
                    continue
                pattern = eval(text, scope)
                used = [function] if function != "compile" else _uses(statement, source)
                for each in used:
                    yield Expression(f"{name}:{node.lineno}", pattern, each)


def _uses(statement: ast.stmt, source: str) -> Sequence[str]:
    """Return the functions with which a module uses the expressions of an assignment; the slowest one if unknown."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    name = ast.unparse(target) if target is not None else ""
    used = re.findall(rf"\b{name}(?:\[[^\]]*\])?\.({'|'.join(_FUNCTIONS)})\b", source) if name else []
    return sorted(set(used)) or ["search"]


def _example(parts: Any) -> str:
    """Return a text that the parts of an expression match; every repetition occurs at least once."""
    return "".join(_example_of(str(kind), value) for kind, value in parts)


def _example_of(kind: str, value: Any) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL" | "ANY":
            return "a"
        case "IN":
            return _member(value)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _example(value[2]) * max(1, int(value[0]))
        case "SUBPATTERN":
            return _example(value[-1])
        case "ATOMIC_GROUP":
            return _example(value)
        case "BRANCH":
            return _example(value[1][0])
        case _:
            return ""  # an assertion


def _member(members: Any) -> str:
    if str(members[0][0]) == "NEGATE":
        return next(char for char in "a1:. <" if re.fullmatch(_class_text(members), char))
    kind, value = str(members[0][0]), members[0][1]
    if kind == "LITERAL":
        return chr(int(value))
    if kind == "RANGE":
        return chr(int(value[0]))
    return "1" if str(value) == "CATEGORY_DIGIT" else " " if str(value) == "CATEGORY_SPACE" else "a"


def _class_text(members: Any) -> str:
    return f"[{''.join(_member_text(str(kind), value) for kind, value in members)}]"


def _member_text(kind: str, value: Any) -> str:
    match kind:
        case "NEGATE":
            return "^"
        case "LITERAL":
            return re.escape(chr(value))
        case "RANGE":
            return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        case _:
            return {"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_WORD": r"\w"}[str(value)]


def _words(parts: Any) -> list[Any]:
    """Return the parts, with adjacent characters joined to one part each."""
    found: list[Any] = []
    for part in parts:
        is_char = str(part[0]) == "LITERAL"
        if is_char and found and str(found[-1][0]) == "SUBPATTERN" and found[-1][1][0] == "word":
            found[-1][1][-1].append(part)
        else:
            found.append(("SUBPATTERN", ("word", [part])) if is_char else part)
    return found


def _pumps(parts: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (what comes before, what is repeated) for every run of parts, at every depth."""
    parts = _words(parts)
    for begin in range(len(parts)):
        prefix = before + _example(parts[:begin])
        for end in range(begin + 1, min(len(parts), begin + _MOST_PARTS) + 1):
            yield prefix, _example(parts[begin:end])
        kind, value = str(parts[begin][0]), parts[begin][1]
        repeats = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
        inner = [value[-1]] if kind in repeats or (kind == "SUBPATTERN" and value[0] != "word") else []
        inner += value[1] if kind == "BRANCH" else [value] if kind == "ATOMIC_GROUP" else []
        for each in inner:
            yield from _pumps(each, prefix)


def _hostile(pattern: "re.Pattern[Any]") -> set[tuple[str, str]]:
    found = set(_pumps(_PARSER.parse(pattern.pattern, pattern.flags)))
    return {(before, pump) for prefix, pump in found for before in (prefix, "") if pump}


def _ms(expression: Expression, text: str) -> float:
    subject: Any = text if isinstance(expression.pattern.pattern, str) else text.encode("latin-1", "replace")
    call = getattr(expression.pattern, expression.function)
    begin_s = thread_time()
    if expression.function in ("sub", "subn"):
        call(subject[:0], subject)
    elif expression.function == "finditer":
        list(call(subject))
    else:
        call(subject)
    return (thread_time() - begin_s) * 1_000


EXPRESSIONS: Final = sorted(set(_expressions()), key=lambda each: (each.place, each.pattern.pattern, each.function))


def test_the_expressions_are_found() -> None:
    assert len(EXPRESSIONS) > 50


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda each: f"{each.place}-{each.function}")
def test_an_expression_takes_time_in_proportion_to_the_text(expression: Expression) -> None:
    for before, pump in sorted(_hostile(expression.pattern)):
        for end in _ENDS:
            for length in _LENGTHS:
                text = before + pump * (length // len(pump)) + end
                # The least of three, because the processor is shared.
                spent_ms = min(_ms(expression, text) for _ in range(3)) if _ms(expression, text) > LIMIT_MS else 0
                assert spent_ms <= LIMIT_MS, f"{length} characters: {before!r} {pump!r} … {end!r}"
