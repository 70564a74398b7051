"""Reports to a receiver on a real socket are signed, ordered, and repeated for a limited time until accepted."""

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import WebhookSettings
from namesrv_stream.tools.webhook import reports as module
from namesrv_stream.tools.webhook.reports import OLD_SIGNATURE_HEADER, SIGNATURE_HEADER, Sender, lost_events, message
from tests.support.processes import free_port
from tests.support.slow_peer import slow_peer
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
        at_s, digest = report.headers[SIGNATURE_HEADER].removeprefix("t=").split(",v1=")
        signed = f"{at_s}\n{receiver.url}\n".encode() + report.body
        assert digest == hmac.new(key, signed, hashlib.sha256).hexdigest()
        assert abs(SystemClock().now_ms() / 1000 - int(at_s)) < 60
        digest = report.headers[OLD_SIGNATURE_HEADER].removeprefix("sha256=")
        assert digest == hmac.new(key, report.body, hashlib.sha256).hexdigest()
        assert report.headers["Content-Type"] == "application/json"


def test_without_a_secret_there_is_no_signature() -> None:
    with Receiver() as receiver:
        assert Sender(_settings(receiver.url)).send(_MESSAGE)
    assert not {SIGNATURE_HEADER, OLD_SIGNATURE_HEADER} & receiver.reports[0].headers.keys()


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


def test_an_invalid_host_name_does_not_end_the_webhook() -> None:
    assert not Sender(_settings("http://\u00e9..b/", give_up_ms=1)).send(_MESSAGE)


@pytest.mark.parametrize("to", ["http://127.0.0.1:{}/", "https://proxied.invalid/"])
def test_no_receiver_and_no_proxy_can_extend_an_attempt(
    to: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with slow_peer(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a") as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        assert not Sender(_settings(to.format(port), timeout_ms=500, give_up_ms=1)).send(_MESSAGE)
    assert "reason=timed out" in caplog.text


def test_the_body_of_an_answer_is_not_read() -> None:
    with slow_peer(b"HTTP/1.1 200 OK\r\n\r\n", b"a") as port:
        assert Sender(_settings(f"http://127.0.0.1:{port}/", timeout_ms=500)).send(_MESSAGE)


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
