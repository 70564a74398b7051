"""The OpenAPI document describes what the HTTP port does."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from namesrv_stream.route.events import KvPut
from namesrv_stream.server.http.http_server import document
from tests.support.builders import S1, Log, a_registration
from tests.support.http_rig import HttpRig

DOCUMENT = document()
_ASKED = (
    *("/healthz", "/readyz", "/routes/TopicTest", "/topics", "/clusters", "/brokers", "/kv", "/kv/ns", "/openapi.json"),
    *("/changes?wait=0", "/changes/state?kind=*", "/state", "/state/keys?partition=0"),
    *("/state/rows?partition=0&kind=kv&name=ns", "/nowhere", "/kv/other"),
)


def _validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    return ((path, item["get"]) for path, item in DOCUMENT["paths"].items())


def test_documented_paths_are_those_that_are_answered() -> None:
    routes = [re.sub(r":\w+}", "}", route.path) for route in HttpRig().http.routes]
    assert sorted(DOCUMENT["paths"]) == sorted(routes)


def test_documented_path_parameters_are_those_of_the_paths() -> None:
    for path, operation in _operations():
        names = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
        assert names == re.findall(r"{(\w+)}", path), path


@pytest.mark.parametrize("name", sorted(DOCUMENT["components"]["schemas"]))
def test_documented_schemas_are_valid_json_schemas(name: str) -> None:
    Draft202012Validator.check_schema(DOCUMENT["components"]["schemas"][name])


@pytest.mark.parametrize("path", sorted(DOCUMENT["paths"]))
def test_documented_examples_conform_to_their_schemas(path: str) -> None:
    operation = DOCUMENT["paths"][path]["get"]
    for parameter in operation["parameters"]:
        _validator(parameter["schema"]).validate(parameter["example"])


@pytest.mark.parametrize("path", _ASKED)
async def test_answers_conform_to_the_document(path: str) -> None:
    served, log = HttpRig(), Log()
    log.register(a_registration())
    log.say(KvPut(S1, "ns", "key", "value"))
    served.commit(log.output.changes, {0: 2})
    async with served.serving():
        found = await served.get(path)
    pattern_of = {path: re.sub(r"{\w+}", r"[^?/]+", path) for path in DOCUMENT["paths"]}
    template = next((p for p, pattern in pattern_of.items() if re.fullmatch(pattern, path.split("?")[0])), None)
    responses = DOCUMENT["paths"][template or "/kv"]["get"]["responses"]
    content = responses.get(str(found.status), responses["default"])["content"]
    _validator(content[found.headers["content-type"]]["schema"]).validate(found.json())


async def test_every_kind_of_row_conforms_to_the_document() -> None:
    served, log = HttpRig(), Log()
    log.register(a_registration(filter_servers=("f:1",)))
    log.say(KvPut(S1, "ns", "key", "value"))
    log.change_settings(default_timeout_ms=60_000)
    log.unregister(a_registration())
    served.commit(log.output.changes, {0: len(log.records)})
    async with served.serving():
        found = await served.get("/changes?since=1.0000000000004000.0&wait=0&kind=*")
    _validator(DOCUMENT["components"]["schemas"]["Changes"]).validate(found.json())
    assert len(found.json()["rows"]) == len(log.output.changes)


async def test_the_document_is_served() -> None:
    served = HttpRig()
    async with served.serving():
        found = await served.get("/openapi.json")
        again = await served.get("/openapi.json", If_None_Match=found.headers["etag"])
    assert found.json() == DOCUMENT
    assert again.status == 304
