"""``/openapi.json``: what the HTTP port answers, for programs and for those who write them."""

import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from namesrv_stream import __version__
from namesrv_stream.server.http.answers import ProblemDetails
from namesrv_stream.server.http.operation import Operation, Query, parameter_schema
from namesrv_stream.server.http.responses import PROBLEM_JSON

_REF = "#/components/schemas/{model}"
_PATH_PARAMETERS = {
    "topic": ("Name of a topic.", "TopicTest"),
    "namespace": ("KV namespace.", "ORDER_TOPIC_CONFIG"),
    "unit": ("Unit name of a client.", "hz"),
    "part": ("Name of a part.", "brokers"),
    "name": ("Name of a file.", "console.css"),
}


def openapi_document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document, in OpenAPI 3.1."""
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
            "description": "The HTTP port of a RocketMQ name server. It only answers; docs/http.md tells more.",
        },
        "paths": {operation.path: {"get": _operation(operation, of_body)} for operation in operations},
        "components": {"schemas": {name: _plain(schema) for name, schema in definitions["$defs"].items()}},
    }


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    content = {media: {"schema": schemas.get(str(body), {})} for media, body in operation.content.items()}
    ok = {str(status): {"description": operation.summary, "content": content} for status in operation.statuses}
    if "304" in ok:
        ok["304"] = {"description": "it is as the ETag in If-None-Match says"}
    # Whoever asks for HTML, as browsers do, gets a page with the same title and detail.
    problem = {PROBLEM_JSON: {"schema": schemas[str(ProblemDetails)]}, "text/html": {"schema": {}}}
    errors = {*operation.errors, 400} if operation.query else operation.errors
    why = {str(status): {"description": "why not, and what to do", "content": problem} for status in sorted(errors)}
    return {
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": {**ok, **why, "default": {"description": "any other problem", "content": problem}},
    }


def _path_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"{(\w+)}", operation.path):
        text, example = _PATH_PARAMETERS[name]
        yield _parameter(name, "path", {"type": "string", "description": text, "examples": [example]}, required=True)


def _query_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    model = operation.query or Query  # which has none
    for name, field in model.model_fields.items():
        yield _parameter(name, "query", parameter_schema(model, name), required=field.is_required())


def _parameter(name: str, place: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
    description, examples = schema.pop("description"), schema.pop("examples")
    shown = {"description": description, "schema": schema, "example": examples[0]}
    return {"name": name, "in": place, "required": required, **shown}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Without what pydantic says for Python: an optional property is absent, never null."""
    required = schema.get("required", ())
    for name, found in schema.get("properties", {}).items():
        found.pop("title", None)
        if name not in required:
            found.pop("default", None)
            found |= next((each for each in found.pop("anyOf", ()) if each != {"type": "null"}), {})
    return {key: value for key, value in schema.items() if key != "title"}
