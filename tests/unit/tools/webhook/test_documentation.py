"""The receiver in docs/webhook.md understands the reports, and the page names every event."""

import re
from pathlib import Path
from typing import Any

import orjson

from namesrv_stream.settings import WebhookSettings
from namesrv_stream.tools.webhook.reports import SIGNATURE_HEADER, events_of, lost_events, message, signature

_ROOT = Path(__file__).resolve().parents[4]
_PAGE = (_ROOT / "docs" / "webhook.md").read_text(encoding="utf-8")
_BROKER = {"cluster": "c0", "broker_name": "b0", "broker_addr": "10.0.0.1:10911", "broker_id": 0}
_AT = {"partition": 0, "offset": 7, "seq": 0, "at_ms": 1_000}
_ROWS: list[dict[str, Any]] = [
    {**_AT, "kind": "broker_live", "gone": True, "cause": "expired", **_BROKER},
    {
        **_AT,
        "kind": "broker_data",
        "gone": False,
        "cause": "returned",
        **_BROKER,
        "broker_addrs": [[0, "10.0.0.1:10911"]],
    },
]


def _receiver() -> dict[str, Any]:
    (program,) = re.findall(r"^```python\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "receiver"}
    exec(compile(program, "docs/webhook.md", "exec"), names)
    return names


def test_receiver_raises_an_alert_and_resolves_it() -> None:
    report = orjson.loads(orjson.dumps(message([*events_of(_ROWS, WebhookSettings()), lost_events("why", 1)])))
    raised, resolved = _receiver()["alerts"](report)
    assert raised["labels"] == resolved["labels"]
    assert raised["labels"]["broker"] == "b0"
    assert raised["startsAt"] == resolved["endsAt"] == "1970-01-01T00:00:01.000Z"


def test_receiver_accepts_only_valid_signatures() -> None:
    receiver = _receiver()
    receiver["is_genuine"].__globals__["SECRET"] = b"key"
    assert receiver["is_genuine"](b"body", signature(b"key", b"body"))
    assert not receiver["is_genuine"](b"body", signature(b"other", b"body"))
    assert not receiver["is_genuine"](b"body", None)
    assert SIGNATURE_HEADER in _PAGE


def test_the_page_names_every_event() -> None:
    schema = orjson.loads((_ROOT / "schemas" / "webhook.v1.json").read_bytes())
    events = schema["$defs"]["event"]["properties"]["event"]["enum"]
    assert re.findall(r"^\| `(\w+)` \|", _PAGE, re.MULTILINE) == events
