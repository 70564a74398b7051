"""The events of each row; every report conforms to the schema."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from namesrv_stream.settings import WebhookSettings
from namesrv_stream.tools.webhook.reports import events_of, kinds, lost_events, message

_ROOT = Path(__file__).resolve().parents[4]
_SCHEMA = json.loads((_ROOT / "schemas" / "webhook.v1.json").read_text(encoding="utf-8"))
_ALL = WebhookSettings(
    events=("broker_down", "broker_held", "broker_released", "broker_route", "topic_route", "topic_route_removed")
)
_BROKER = {"cluster": "c0", "broker_name": "b0", "broker_addr": "10.0.0.1:10911", "broker_id": 0}
_QUEUES = {"cluster": "c0", "broker_name": "b0", "topic": "T"}


def _row(kind: str, gone: bool, cause: str, **columns: Any) -> dict[str, Any]:
    return {
        "partition": 0,
        "offset": 7,
        "seq": 1,
        "at_ms": 1_000,
        "kind": kind,
        "gone": gone,
        "cause": cause,
        **columns,
    }


_ROWS = [
    _row("broker_live", True, "expired", detail="not heard for 121004 ms", **_BROKER),
    _row("broker_live", False, "registered", **_BROKER),
    _row("guard", False, "guard_held", value="{}", **_BROKER),
    _row("guard", True, "heard", **_BROKER),
    _row("broker_data", False, "registered", cluster="c0", broker_name="b0", broker_addrs=[[0, "10.0.0.1:10911"]]),
    _row("broker_data", True, "expired", broker_name="b0"),
    _row("queue_data", False, "registered", read_queue_nums=8, write_queue_nums=8, perm=6, **_QUEUES),
    _row("queue_data", True, "topic_deleted", **_QUEUES),
    _row("kv", False, "kv_put", namespace="n", key="k", value="v"),
]


def _names(settings: WebhookSettings) -> list[str]:
    return [event["event"] for event in events_of(_ROWS, settings)]


def test_report_of_a_removed_broker_has_name_time_and_cause() -> None:
    (event,) = events_of(_ROWS, WebhookSettings(events=("broker_down",)))
    assert event == {
        **_BROKER,
        "id": "0:7:1",
        "event": "broker_down",
        "at": "1970-01-01T00:00:01.000Z",
        "at_ms": 1_000,
        "cause": "expired",
        "detail": "not heard for 121004 ms",
        "text": "broker b0 of cluster c0 at 10.0.0.1:10911 is down: expired (not heard for 121004 ms)",
    }


_HOSTILE = "<!channel> <@U1>&lt; @all @here\n[pay](http://x) ![](http://x) `a` *b* ~~c~~ \u202eabc"


def test_no_name_is_markup_or_another_line_in_a_chat_program() -> None:
    rows = [
        {
            key: _HOSTILE if key in {"cluster", "broker_name", "broker_addr", "topic", "detail"} else value
            for key, value in row.items()
        }
        for row in _ROWS
    ]
    rows[4]["broker_addrs"] = [[0, _HOSTILE]]
    events = events_of(rows, _ALL)
    text = message(events)["text"]
    assert len(text.splitlines()) == len(events) == len(_ALL.events)
    assert not set(text) & set("&<>@[]`*~\u202e")
    assert r"\u003c!channel\u003e \u003c\u0040U1\u003e\u0026lt; \u0040all \u0040here\n\u005bpay\u005d(http" in text
    assert {event["broker_name"] for event in events} == {_HOSTILE}, "the fields have the names themselves"


def test_very_long_names_are_cut_in_the_text() -> None:
    (event,) = events_of([_ROWS[0] | {"broker_name": "b" * 100_000}], WebhookSettings(events=("broker_down",)))
    assert len(event["text"]) < 500


def test_every_kind_of_event_is_made_from_a_row_and_conforms_to_the_schema() -> None:
    assert _names(_ALL) == list(_ALL.events)
    Draft202012Validator.check_schema(_SCHEMA)
    Draft202012Validator(_SCHEMA).validate(message([*events_of(_ROWS, _ALL), lost_events("why", 1)]))
    assert set(_SCHEMA["$defs"]["event"]["properties"]["event"]["enum"]) == {*_ALL.events, "events_lost"}


def test_only_configured_events_are_requested_and_reported() -> None:
    assert _names(WebhookSettings()) == ["broker_down", "broker_held", "broker_route"]
    assert kinds(WebhookSettings()) == "broker_data,broker_live,guard"
    assert _names(_ALL.model_copy(update={"clusters": ("c1",)})) == []
    without_topics = [name for name in _ALL.events if not name.startswith("topic")]
    assert _names(_ALL.model_copy(update={"topics": ("U",)})) == without_topics
    assert _names(_ALL.model_copy(update={"topics": ("T",)})) == list(_ALL.events)


@pytest.mark.parametrize(("count", "last"), [(20, "is down"), (21, "and 1 more")])
def test_text_of_many_events_is_shortened(count: int, last: str) -> None:
    lines = message(events_of(_ROWS[:1] * count, _ALL))["text"].splitlines()
    assert len(lines) == min(count, 21)
    assert last in lines[-1]
