"""Operations of the HTTP port: path, endpoint, a typed model of the query, and the schemas of the answers.

The OpenAPI document is generated from the same declarations, so it always matches the port.
"""

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from namesrv_stream import __version__
from namesrv_stream.logs import safe
from namesrv_stream.server.http.answers import PROBLEM_JSON, Problem, ProblemDetails

JSON: Final = "application/json"

Endpoint = Callable[..., Awaitable[Response]]
Statuses = tuple[int, ...]
#: What requests of an operation count as. "request" and "stream" have limits of their own (``limits``). A "vital" one,
#: which probes, Prometheus or clients without an address need, is never refused because of others.
Load = Literal["request", "stream", "vital"]
F = TypeVar("F", bound=Endpoint)


#: Maximum length of every parameter of a path or query that declares no other ``max_length``. Brokers accept topics of
#: 127 characters, and names of groups' topics are somewhat longer.
_MOST_CHARS: Final = 1_024


class Query(BaseModel):
    """The query of a URL. No parameter is longer than its ``max_length``, or than ``_MOST_CHARS`` without one.

    An unknown parameter is an error. If it were ignored, ``/routes/T?asof=-1h`` would return the present route instead
    of the past one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


class Operation(NamedTuple):
    """The declaration of one path, with ``{name}`` for path parameters.

    Attributes:
        query: Model of the query; None if every query is ignored.
        content: Media type → type of the JSON body; None for text.
        statuses: HTTP statuses of answers that are not problems.
        errors: HTTP statuses of expected problems.
        load: The limit that applies.
    """

    path: str
    summary: str
    query: type[Query] | None
    content: Mapping[str, Any]
    statuses: Statuses
    errors: Statuses
    load: Load


def answers(
    path: str,
    *content: tuple[str, Any],
    statuses: Statuses = (200,),
    errors: Statuses = (),
    any_query: bool = False,
    load: Load = "request",
) -> Callable[[F], F]:
    """Declare a method ``(request)`` or ``(request, query)`` as the endpoint of a path, summarised by its docstring."""

    def declare(function: F) -> F:
        query = None if any_query else function.__annotations__.get("query", Query)
        summary = (function.__doc__ or "").partition("\n")[0].removesuffix(".")
        operation = Operation(path, summary, query, dict(content), statuses, errors, load)
        function.operation = operation  # type: ignore[attr-defined] # read by `operations`
        return function

    return declare


def operations(page: object) -> Iterator[tuple[Operation, Endpoint]]:
    """Yield the declared operations of a page object, with their endpoints; or those of its class."""
    for name in dir(type(page) if not isinstance(page, type) else page):
        found = getattr(page, name)
        if hasattr(found, "operation"):
            yield found.operation, found


def route(operation: Operation, endpoint: Endpoint) -> Route:
    """Return a Starlette route, named after its path, that checks the query before it calls the endpoint."""
    takes_query = "query" in endpoint.__annotations__

    async def checked(request: Request) -> Response:
        for name, text in request.path_params.items():
            _check_length(name, text, _MOST_CHARS)
        query = None if operation.query is None else parse_query(request.query_params, operation.query)
        return await (endpoint(request, query) if takes_query else endpoint(request))

    # Names of topics, brokers and KV namespaces can contain slashes. The subgroup can be empty as well.
    return Route(
        re.sub(r"{(topic|namespace|broker_name|subgroup)}", r"{\1:path}", operation.path), checked, name=operation.path
    )


Q = TypeVar("Q", bound=Query)


def parse_query(given: QueryParams, model: type[Q]) -> Q:
    """Return the query as its model.

    Raises:
        Problem: A parameter is unknown, is given twice, is too long, or has an invalid value.
    """
    for name, text in given.multi_items():
        if name not in model.model_fields:
            suggestion = _suggestion(name, list(model.model_fields)) if len(name) <= _MOST_CHARS else ""
            raise Problem(400, f"{safe(name)}: unknown parameter{suggestion}")
        if len(given.getlist(name)) > 1:
            raise Problem(400, f"{name}: given more than once")
        _check_length(name, text, _most_chars(model, name))
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        fault = first.get("ctx", {}).get("error") or _expected(parameter_schema(model, name))
        raise Problem(400, f"{name}: {fault}") from None


def _check_length(name: str, text: str, most: int) -> None:
    if len(text) > most:
        raise Problem(400, f"{name}: expected at most {most:,} characters, got {len(text):,}")


def _most_chars(model: type[Query], name: str) -> int:
    """Return the maximum length of a parameter's text, whatever its type is."""
    return next(
        (item.max_length for item in model.model_fields[name].metadata if hasattr(item, "max_length")), _MOST_CHARS
    )


def parameter_schema(model: type[Query], name: str) -> dict[str, Any]:
    schema: dict[str, Any] = dict(model.model_json_schema()["properties"][name])
    given: dict[str, Any] = next((each for each in schema.pop("anyOf", ()) if each != {"type": "null"}), {})
    for key in ("title", "default"):
        schema.pop(key, None)
    found = schema | given
    is_free = found["type"] == "string" and "enum" not in found
    return found | ({"maxLength": _most_chars(model, name)} if is_free else {})


def _suggestion(name: str, known: list[str]) -> str:
    if not known:
        return "; this path takes none"
    # `?asof=` and `?As-Of=` mean `as_of`, `?broker=` means `broker_name`.
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1) or [
        other for other in known if other.startswith(f"{name}_")
    ]
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"


def _expected(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"expected one of {', '.join(filter(None, schema['enum']))}"
    return f"expected a whole number from {schema['minimum']} to {schema['maximum']}"


_REF = "#/components/schemas/{model}"
_PATH_PARAMETERS = {
    "topic": ("Name of a topic.", "TopicTest"),
    "broker_name": ("Name of a broker.", "broker-a"),
    "namespace": ("KV namespace.", "ORDER_TOPIC_CONFIG"),
    "subgroup": ("Any subgroup of a client, with or without -UNIT; it may be empty.", "nsaddr-hz"),
    "part": ("Name of a part.", "brokers"),
    "name": ("Name of a file.", "console.css"),
}


def openapi_document(operations: Iterable[Operation]) -> dict[str, Any]:
    operations = list(operations)
    bodies = [ProblemDetails, *(body for operation in operations for body in operation.content.values() if body)]
    adapters = [(str(body), "serialization", TypeAdapter(body)) for body in bodies]
    schemas, definitions = TypeAdapter.json_schemas(adapters, ref_template=_REF)  # type: ignore[arg-type]
    of_body = {name: schema for (name, _), schema in schemas.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "namesrv-stream",
            "version": __version__,
            "description": "The HTTP port of a RocketMQ name server. It is read-only; docs/http.md describes it.",
        },
        "paths": {operation.path: {"get": _operation(operation, of_body)} for operation in operations},
        "components": {"schemas": {name: _plain(schema) for name, schema in definitions["$defs"].items()}},
    }


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    content = {media: {"schema": schemas.get(str(body), {})} for media, body in operation.content.items()}
    ok = {str(status): {"description": operation.summary, "content": content} for status in operation.statuses}
    if "304" in ok:
        ok["304"] = {"description": "the answer has the ETag in If-None-Match"}
    # Clients that accept HTML, as browsers do, get a page with the same title and detail.
    problem = {PROBLEM_JSON: {"schema": schemas[str(ProblemDetails)]}, "text/html": {"schema": {}}}
    errors = {*operation.errors, 400} if operation.query else operation.errors
    why = {
        str(status): {"description": "what is wrong, and what to do", "content": problem} for status in sorted(errors)
    }
    return {
        "summary": operation.summary,
        "parameters": list(_parameters(operation)),
        "responses": {**ok, **why, "default": {"description": "any other problem", "content": problem}},
    }


def _parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", operation.path):
        text, example = _PATH_PARAMETERS[name]
        schema = {"type": "string", "maxLength": _MOST_CHARS, "description": text, "examples": [example]}
        yield _parameter(name, "path", schema, required=True)
    model = operation.query or Query  # `Query` itself has no parameters
    for name, field in model.model_fields.items():
        yield _parameter(name, "query", parameter_schema(model, name), required=field.is_required())


def _parameter(name: str, place: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    description, examples = schema.pop("description"), schema.pop("examples")
    shown = {"description": description, "schema": schema, "example": examples[0]}
    return {"name": name, "in": place, "required": required, **shown}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without pydantic's titles, defaults and nulls: an optional property is absent, never null."""
    required = schema.get("required", ())
    for name, found in schema.get("properties", {}).items():
        found.pop("title", None)
        if name not in required:
            found.pop("default", None)
            found |= next((each for each in found.pop("anyOf", ()) if each != {"type": "null"}), {})
    return {key: value for key, value in schema.items() if key != "title"}
