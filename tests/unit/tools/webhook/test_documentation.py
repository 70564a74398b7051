"""The receiver in docs/webhook.md understands the reports, and the page names every event."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from namesrv_stream.clock import SystemClock
from namesrv_stream.settings import WebhookSettings
from namesrv_stream.tools.webhook.reports import SIGNATURE_HEADER, events_of, lost_events, message, signature

_ROOT = Path(__file__).resolve().parents[4]
_PAGE = (_ROOT / "docs" / "webhook.md").read_text(encoding="utf-8")
_URL = "https://receiver.example/rocketmq"
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


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", "key")
    monkeypatch.setenv("WEBHOOK_URL", _URL)


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
    is_genuine, now_s = _receiver()["is_genuine"], SystemClock().now_ms() // 1000
    header = signature(b"key", _URL, b"body", now_s)
    assert is_genuine(b"body", header)
    for other in (
        signature(b"other", _URL, b"body", now_s),
        signature(b"key", "http://other.example/", b"body", now_s),
        signature(b"key", _URL, b"other", now_s),
        signature(b"key", _URL, b"body", now_s - 400),
        header.replace(f"={now_s},", f"={now_s + 1},"),
        None,
    ):
        assert not is_genuine(b"body", other)
    assert f'self.headers["{SIGNATURE_HEADER}"]' in _PAGE


def test_the_page_names_every_event() -> None:
    schema = orjson.loads((_ROOT / "schemas" / "webhook.v1.json").read_bytes())
    events = schema["$defs"]["event"]["properties"]["event"]["enum"]
    assert re.findall(r"^\| `(\w+)` \|", _PAGE, re.MULTILINE) == events
