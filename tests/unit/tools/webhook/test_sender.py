"""Reports to a receiver on a real socket are signed, ordered, and repeated for a limited time until accepted."""

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import WebhookSettings
from namesrv_stream.tools.webhook import reports as module
from namesrv_stream.tools.webhook.reports import SIGNATURE_HEADER, Sender, lost_events, message
from tests.support.processes import free_port
from tests.support.webhook_receiver import Receiver

_MESSAGE = message([lost_events("why", 1)])


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_DELAY_MS", 1)
    monkeypatch.setattr(module, "_LONGEST_DELAY_MS", 20)


def _settings(url: str, **changes: Any) -> WebhookSettings:
    return WebhookSettings(url=url, **changes)


def test_report_is_signed_with_the_current_secret(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first\n", encoding="utf-8")
    with Receiver() as receiver:
        sender = Sender(_settings(receiver.url, secret_file=str(secret)))
        assert sender.send(_MESSAGE)
        secret.write_text("second\n", encoding="utf-8")
        assert sender.send(_MESSAGE)
    for report, key in zip(receiver.reports, (b"first", b"second"), strict=True):
        assert report.headers[SIGNATURE_HEADER] == "sha256=" + hmac.new(key, report.body, hashlib.sha256).hexdigest()
        assert report.headers["Content-Type"] == "application/json"


def test_without_a_secret_there_is_no_signature() -> None:
    with Receiver() as receiver:
        assert Sender(_settings(receiver.url)).send(_MESSAGE)
    assert SIGNATURE_HEADER not in receiver.reports[0].headers


def test_report_is_sent_again_until_it_is_accepted() -> None:
    with Receiver() as receiver:
        receiver.statuses = [500, 404, 302]
        assert Sender(_settings(receiver.url)).send(_MESSAGE)
    assert [report.status for report in receiver.reports] == [500, 404, 302, 204]
    assert len({report.body for report in receiver.reports}) == 1


def test_report_is_dropped_with_an_error_in_the_log_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    assert not Sender(_settings(url, give_up_ms=50)).send(_MESSAGE)
    assert "report dropped" in caplog.text
    assert "events=lost:1" in caplog.text


def test_a_secret_url_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    with Receiver() as receiver:
        file.write_text(receiver.url + "\n", encoding="utf-8")
        assert Sender(WebhookSettings(url_file=str(file))).send(_MESSAGE)
    assert len(receiver.reports) == 1


@pytest.mark.parametrize("content", [None, "", "ftp://x"])
def test_a_file_without_a_url_is_refused_at_the_start(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "url"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"webhook\.url_file"):
        Sender(WebhookSettings(url_file=str(file)))
