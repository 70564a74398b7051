"""The files in ``schemas/`` agree with the code."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator
from kafka.partitioner.default import murmur2 as kafka_murmur2

from namesrv_stream.route.changes import KEY_COLUMNS
from namesrv_stream.route.event_json import HEARTBEATS_KIND, KIND_OF, encode_event
from namesrv_stream.route.events import BrokerHeartbeat, Event, murmur2, partition_of
from namesrv_stream.route.model import LiveKey, Registration
from tests.support.ddl import SCHEMAS, ddl
from tests.support.strategies_route import events

_SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
_EVENT = json.loads((_SCHEMAS / "broker_event.v1.json").read_text())
_VALIDATOR = Draft202012Validator(_EVENT)
_VECTORS = json.loads((_SCHEMAS / "partitioner.json").read_text())["vectors"]


@given(events())
def test_every_event_is_valid(event: Event) -> None:
    _VALIDATOR.validate(json.loads(encode_event(event)))


def test_the_event_schema_knows_every_kind_and_no_other() -> None:
    Draft202012Validator.check_schema(_EVENT)
    assert {*KIND_OF, BrokerHeartbeat} ^ {*get_args(Event)} == set(), "in KIND_OF or in Event, but not in both"
    described = set(_EVENT["properties"]["kind"]["enum"])
    assert described ^ {*KIND_OF.values(), HEARTBEATS_KIND} == set(), "in KIND_OF or in the schema, but not in both"


@pytest.mark.parametrize(("event", "definition"), [*KIND_OF.items(), (BrokerHeartbeat, "heartbeat")])
def test_the_event_schema_has_the_fields_of_every_event_and_no_others(event: type[Any], definition: str) -> None:
    parts = {
        "live_key": LiveKey._fields,
        "registration": [field.name for field in fields(Registration) if field.compare],
    }
    names = {name for field in fields(event) for name in parts.get(field.name, [field.name])}
    of_origin = {"origin", "connection_id"}  # at the top level of a record, or in an item of it
    described = _EVENT["$defs"][definition]["properties"].keys()
    assert (described ^ names) - of_origin == set(), "in the class or in schemas/broker_event.v1.json, but not in both"


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "tick"},
        {"schema_version": 2, "kind": "tick"},
        {"schema_version": 1, "kind": "no such kind"},
        {"schema_version": 1, "kind": "tick", "server_id": "s1"},
        {"schema_version": 1, "kind": "kv_put", "namespace": "n", "key": "k"},
        {"schema_version": 1, "kind": "broker_heartbeats", "items": [{"broker_name": "b"}]},
    ],
)
def test_events_that_the_fold_refuses_are_invalid(record: dict[str, Any]) -> None:
    assert not _VALIDATOR.is_valid(record)


@pytest.mark.parametrize("vector", _VECTORS, ids=lambda v: v["key"][:12])
def test_partitioner_vectors_match_this_product_and_kafka_python(vector: dict[str, Any]) -> None:
    key = vector["key"].encode()
    assert murmur2(key) == vector["murmur2"] == kafka_murmur2(key) & 0xFFFFFFFF
    for partitions in (4, 7):
        assert partition_of(vector["key"], partitions) == vector[f"partition_of_{partitions}"]


@pytest.mark.parametrize("table", SCHEMAS)
def test_ddl_matches_the_code(table: str) -> None:
    is_current = (_SCHEMAS / f"{table}.sql").read_text() == ddl(table)
    assert is_current, f"schemas/{table}.sql is out of date: run python -m tests.support.ddl"


def test_the_readme_lists_every_table() -> None:
    text = (_SCHEMAS / "README.md").read_text()
    assert [f"`{path.name}`" for path in sorted(_SCHEMAS.glob("*.sql")) if f"`{path.name}`" not in text] == []


def test_the_readme_lists_every_kind_with_its_key() -> None:
    text = (_SCHEMAS / "README.md").read_text()
    for kind, columns in KEY_COLUMNS.items():
        assert f"`{kind}` | {', '.join(columns)} |" in text
