"""The query of a URL, held against the description of its path.

A parameter that is unknown must not be ignored: ``/routes/T?asof=-1h`` would answer the present as if it were the past.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams

from namesrv_stream.logs import safe
from namesrv_stream.server.http.problems import Problem


def check_query(query: QueryParams, schemas: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse what the path does not take.

    Args:
        query: As it came.
        schemas: JSON Schema of every parameter that the path takes. Strings (with ``maxLength``), integers (between
            ``minimum`` and ``maximum``) and ``enum`` are known here.

    Raises:
        Problem: A parameter is unknown, is given twice, or has a value that its schema does not allow.
    """
    for name in query:
        if name not in schemas:
            raise Problem(400, f"{safe(name)}: unknown parameter{_suggestion(name, list(schemas))}")
        if len(query.getlist(name)) > 1:
            raise Problem(400, f"{name}: given more than once")
        expected = _expected(schemas[name], query[name])
        if expected:
            raise Problem(400, f"{name}: expected {expected}")


def _suggestion(name: str, known: list[str]) -> str:
    if not known:
        return "; this path takes none"
    # `?asof=` and `?As-Of=` mean `as_of`, `?broker=` means `broker_name`.
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1) or [
        other for other in known if other.startswith(f"{name}_")
    ]
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"


def _expected(schema: Mapping[str, Any], text: str) -> str:
    """What the schema expects, if the text is something else; otherwise ""."""
    if "enum" in schema:
        return "" if text in schema["enum"] else f"one of {', '.join(filter(None, schema['enum']))}"
    if schema["type"] == "string":
        longest = schema.get("maxLength", len(text))
        return "" if len(text) <= longest else f"at most {longest} characters"
    least, most = schema["minimum"], schema["maximum"]
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return "" if is_number and least <= int(text) <= most else f"a whole number from {least} to {most}"
