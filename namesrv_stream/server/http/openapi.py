"""``/openapi.json``: what the HTTP port answers, for programs and for those who write them."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from namesrv_stream import __version__
from namesrv_stream.server.http.openapi_parameters import CONSOLE_PARAMETERS, PARAMETERS, POSITION, Parameter
from namesrv_stream.server.http.openapi_schemas import SCHEMAS, Schema, ref

_CHANGE: Final = {
    **{"partition": 0, "offset": 91821, "seq": 0, "at_ms": 1_763_762_400_000, "kind": "queue_data", "gone": False},
    **{"cause": "registered", "cluster": "c0", "broker_name": "broker-a", "topic": "TopicTest"},
    **{"read_queue_nums": 8, "write_queue_nums": 8, "perm": 6, "topic_sys_flag": 0},
}
_STATE_ROW: Final = {k: v for k, v in _CHANGE.items() if k not in ("offset", "seq", "at_ms", "cause")}
_HEALTH: Final[dict[str, Any]] = {
    "state": "yellow",
    "parts": [
        {"name": "server", "state": "ok"},
        {"name": "kafka", "state": "ok", "since_ms": 1_763_762_000_000},
        {"name": "guard", "state": "degraded", "reason": "it holds 3 brokers that seem to have ended: `guard list`"},
    ],
    **{"kafka": "up", "brokers": 12, "held_brokers": 3, "connections": 240, "pending_events": 0, "version": 4711},
    **{"age_ms": 400, "next_offsets": {"0": 91822}},
}
_FILTERS: Final[tuple[str, ...]] = ("kind", "cluster", "broker_name", "topic")


class _Answer(NamedTuple):
    text: str
    schema: str = ""  # of SCHEMAS; "" for text
    example: Any = None
    media_type: str = "application/json"


class _Operation(NamedTuple):
    summary: str
    answers: dict[int, tuple[_Answer, ...]]
    parameters: Mapping[str, Parameter] = {}
    errors: tuple[int, ...] = ()
    takes_any_query: bool = False


def _of(*names: str) -> Mapping[str, Parameter]:
    return {name: PARAMETERS[name] for name in names}


def _ok(text: str, schema: str, example: Any) -> dict[int, tuple[_Answer, ...]]:
    return {200: (_Answer(text, schema, example),)}


def _text(text: str, example: str, media_type: str = "text/plain") -> _Answer:
    return _Answer(text, "", example, media_type)


_READY: Final = {
    "ready": True,
    "reasons": ["guard: it holds 3 brokers that seem to have ended: `guard list`"],
    **_HEALTH,
}
_NOT_READY: Final = {
    **_READY,
    "ready": False,
    "reasons": ["kafka: Kafka has not taken records since this server's start: it has not answered yet"],
    "state": "red",
    "kafka": "down",
}
_ROUTE: Final = {
    "brokerDatas": [
        {
            **{"brokerAddrs": {"0": "10.0.0.1:10911"}, "brokerName": "broker-a", "cluster": "c0"},
            "enableActingMaster": False,
        }
    ],
    "filterServerTable": {},
    "queueDatas": [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}],
}
_BROKER: Final = {
    **{"cluster": "c0", "broker_name": "broker-a", "broker_id": 0, "broker_addr": "10.0.0.1:10911"},
    **{"state": "alive", "timeout_ms": None, "expires_after_ms": 120_000},
    **{"age_ms": 8_214, "since_ms": 1_795_496_638_669},
    **{"servers": ["ns1"], "held": None, "ended": None},
}
_CHANGES: Final = {"position": POSITION, "whole": True, "rows": [_CHANGE]}
_STREAM: Final = f'event: changes\nid: {POSITION}\ndata: {{"position":"{POSITION}","whole":true,"rows":[…]}}\n\n'
_DIGEST: Final = "5f0c1b8ae9d24c77a1d0f3b2c4e5d6a7"

_OPERATIONS: Final[dict[str, _Operation]] = {
    "/": _Operation(
        "The console, for people",
        {200: (_text("A page", "<!DOCTYPE html>…", "text/html"),)},
        CONSOLE_PARAMETERS,
        (400,),
    ),
    "/console/parts/{part}": _Operation(
        "A part of the console, as within its page; for its own script",
        {200: (_text("HTML", "<p>…</p>", "text/html"),)},
        {**_of("part"), **CONSOLE_PARAMETERS},
        (400, 404),
    ),
    "/console/static/{name}": _Operation(
        "A file of the console", {200: (_text("The file", "…", "text/css"),), 304: ()}, _of("name"), (404,)
    ),
    "/healthz": _Operation(
        "How the server is, in parts; 200 while it answers at all",
        {200: (_Answer("Its health", "Health", _HEALTH), _text("The same", "yellow\n[+] server ok\n"))},
        _of("format"),
    ),
    "/readyz": _Operation(
        "Whether brokers can register and clients ask; with the reasons why not",
        {
            200: (_Answer("Ready", "Readiness", _READY), _text("Ready", "ready\n[+] server ok\n")),
            503: (_Answer("Not ready", "Readiness", _NOT_READY), _text("Not ready", "not ready\n[+] server ok\n")),
        },
        _of("format"),
    ),
    "/metrics": _Operation(
        "Figures for Prometheus",
        {200: (_text("Text format 0.0.4", "rocketmq_namesrv_kafka_up 1.0\n"),)},
    ),
    "/routes/{topic}": _Operation(
        "A topic's route as clients get it, with an ETag; or as it was",
        {
            200: (_Answer("The route; with `as_of` a PastRoute", "Route", _ROUTE),),
            304: (),
        },
        _of("topic", "as_of"),
        (400, 404, 503),
    ),
    "/topics": _Operation(
        "Names of all topics that some broker offers, in order",
        _ok("A page of them, or all", "Topics", {"count": 2, "next": None, "topics": ["TopicA", "TopicTest"]}),
        _of("cluster", "prefix", "limit", "after"),
        (400,),
    ),
    "/clusters": _Operation(
        "Addresses of all brokers", _ok("All", "Clusters", {"c0": {"broker-a": {"0": "10.0.0.1:10911"}}})
    ),
    "/brokers": _Operation(
        "All broker processes: who hears them, how long ago; why they are held, or gone",
        _ok("All, or those of a cluster or state", "Brokers", [_BROKER]),
        _of("cluster", "state"),
        (400,),
    ),
    "/kv": _Operation("The KV table", _ok("All", "Namespaces", {"ORDER_TOPIC_CONFIG": {"TopicTest": "broker-a:8"}})),
    "/kv/{namespace}": _Operation(
        "A namespace of the KV table", _ok("All", "Entries", {"TopicTest": "broker-a:8"}), _of("namespace"), (404,)
    ),
    "/changes": _Operation(
        "Committed changes behind a position: an answer as soon as there are any, or a stream of events",
        {
            200: (
                _Answer("Changes, or none when the time is up", "Changes", _CHANGES),
                _text("Events `reset`, `state`, `changes`, `position`: docs/http.md", _STREAM, "text/event-stream"),
            )
        },
        _of("since", "wait", *_FILTERS),
        (400, 410, 503),
    ),
    "/changes/state": _Operation(
        "The committed state as rows, to begin with, and its position",
        _ok("All rows", "StateRows", {"position": POSITION, "rows": [_STATE_ROW]}),
        _of(*_FILTERS),
        (400,),
    ),
    "/state": _Operation(
        "What is served, in short: to compare servers with",
        _ok(
            "Version, age, offsets, digest",
            "State",
            {
                **{"server_id": "ns1", "server_epoch": 3, "software": "0.1.0", "version": 4711, "age_ms": 400},
                **{"pending_events": 0, "next_offsets": {"0": 91822}, "digest": _DIGEST, "partitions": {"0": _DIGEST}},
            },
        ),
    ),
    "/state/keys": _Operation(
        "The digest of each part of a partition",
        _ok(
            "All parts",
            "StateKeys",
            {"next_offset": 91822, "parts": [{"kind": "broker", "name": "broker-a", "digest": _DIGEST}]},
        ),
        _of("partition"),
        (400,),
    ),
    "/state/rows": _Operation(
        "What one part holds",
        _ok("Its rows", "StatePart", {"next_offsets": {"0": 91822}, "rows": [{"kind": "kv", "namespace": "ns"}]}),
        _of("partition", "kind", "name"),
        (400,),
    ),
    "/rocketmq/nsaddr": _Operation(
        "The name servers' addresses, for clients without a namesrvAddr; parameters of RocketMQ's clients are ignored",
        {200: (_text("`;` between them", "10.0.0.9:9876\n"),)},
        takes_any_query=True,
    ),
    "/rocketmq/nsaddr-{unit}": _Operation(
        "The same, for clients with a unit name",
        {200: (_text("`;` between them", "10.0.0.9:9876\n"),)},
        _of("unit"),
        takes_any_query=True,
    ),
    "/openapi.json": _Operation("This document", {200: (_Answer("OpenAPI 3.1", "", {}),)}),
}


@cache
def openapi_document() -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "namesrv-stream",
            "version": __version__,
            "description": "The HTTP port of a RocketMQ name server. It only answers; docs/http.md tells more.",
        },
        "paths": {path: {"get": _operation(path, operation)} for path, operation in _OPERATIONS.items()},
        "components": {"schemas": SCHEMAS},
    }


def query_schemas(path: str) -> Mapping[str, Schema] | None:
    """JSON Schemas of the query parameters that a path takes; None where it ignores what it does not know."""
    operation = _OPERATIONS[path]
    if operation.takes_any_query:
        return None
    return {name: found.schema for name, found in operation.parameters.items() if not _is_in_path(path, name)}


def _is_in_path(path: str, name: str) -> bool:
    return f"{{{name}}}" in path


def _operation(path: str, operation: _Operation) -> dict[str, Any]:
    answers = {str(status): _response(found) for status, found in operation.answers.items()}
    # Whoever asks for HTML, as browsers do, gets a page with the same title and detail.
    problem = {"application/problem+json": {"schema": ref("Problem")}, "text/html": {"schema": {}}}
    errors: Iterable[int] = {*operation.errors, 400} if query_schemas(path) is not None else operation.errors
    for status in sorted(errors):
        answers[str(status)] = {"description": "why not, and what to do", "content": problem}
    return {
        "summary": operation.summary,
        "parameters": [_parameter(path, name, found) for name, found in operation.parameters.items()],
        "responses": {**answers, "default": {"description": "any other problem", "content": problem}},
    }


def _response(answers: tuple[_Answer, ...]) -> dict[str, Any]:
    if not answers:
        return {"description": "it is as the ETag in If-None-Match says"}
    content = {a.media_type: {"schema": ref(a.schema) if a.schema else {}, "example": a.example} for a in answers}
    return {"description": answers[0].text, "content": content}


def _parameter(path: str, name: str, parameter: Parameter) -> dict[str, Any]:
    is_in_path = _is_in_path(path, name)
    return {
        "name": name,
        "in": "path" if is_in_path else "query",
        "required": is_in_path,
        "description": parameter.text,
        "schema": parameter.schema,
        "example": parameter.example,
    }
