"""Checks of what runs: processes, ports, and whether the servers are ready."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

import orjson

from namesrv_stream.addresses import join_addr
from namesrv_stream.client.server_states import BadAnswer, ServerUnreachable, fetch
from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import require_free
from namesrv_stream.run_books import FAULTS
from namesrv_stream.settings import AdminSettings, Settings
from namesrv_stream.settings.installation import running_parts, server_address, starting_parts
from namesrv_stream.tools.doctor.finding import Finding, fault, fine, note, warning

_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_SECOND_MS: Final = 1_000
#: The time of an answer is in whole seconds.
_SKEW_WARNED_MS: Final = 2_000
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of ``GET /readyz`` at a server.

    Attributes:
        body: The body of the answer, whatever its status: a server that is not ready answers 503.
        ahead_ms: Milliseconds by which the server's clock is ahead of this machine's, negative if it is behind; 0 if
            the clocks may agree; None if unknown.
        reason: Why there is no answer; "" if there is one.
    """

    body: bytes = b""
    ahead_ms: int | None = None
    reason: str = ""


def query_readiness(url: str, *, is_certificate_checked: bool = True) -> Reply:
    """Send ``GET /readyz``; blocks for at most 5 s.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        is_certificate_checked: Whether this machine must trust the server's certificate for that host.
    """
    began = time.monotonic()
    try:
        answer = fetch(
            url,
            "/readyz",
            timeout_s=_TIMEOUT_S,
            most_bytes=_MOST_BYTES,
            is_certificate_checked=is_certificate_checked,
        )
    except (ServerUnreachable, BadAnswer) as error:
        return Reply(reason=error.reason)
    return Reply(answer.body, _ahead_ms(answer.date, round((time.monotonic() - began) * 1000)))


def _ahead_ms(date: str | None, took_ms: int) -> int | None:
    """Return ``Reply.ahead_ms``, less the uncertainty: ``Date`` has whole seconds, and the request took time."""
    if date is None:
        return None
    try:
        second_ms = round(parsedate_to_datetime(date).timestamp() * 1000)
    except ValueError:
        return None
    now_ms = SystemClock().now_ms()
    if second_ms > now_ms:
        return second_ms - now_ms
    return min(0, second_ms + _SECOND_MS + took_ms - now_ms)


def processes(settings: Settings) -> Iterator[Finding]:
    """Check which processes run, and which one is missing."""
    here, starting = running_parts(settings.data.run_dir), starting_parts(settings.data.run_dir)
    running = here.keys() | starting.keys()
    if not running:
        yield note("processes", f"none runs on {settings.data.dir}")
        return
    names = [f"{part} (pid {fields['pid']})" for part, fields in here.items()]
    names += [f"{part} (pid {fields['pid']}, starting)" for part, fields in starting.items()]
    yield fine("processes", ", ".join(names))
    # A missing one may run on another machine. The server's answer says whether a job commits.
    if "serve" in here and "job" not in running:
        text = "no job runs on this data directory: without one elsewhere, no broker expires"
        yield note("processes", text, "if it belongs here: namesrv-stream job")
    if settings.has_history and "job" in here and "history-job" not in running:
        text = "no history-job runs on this data directory: without one elsewhere, nothing writes the history tables"
        yield note("processes", text, "if it belongs here: namesrv-stream history-job")


def ports(settings: Settings) -> Iterator[Finding]:
    """Check that the ports of parts that do not run are free; for running ones, say which port they have."""
    here, starting = running_parts(settings.data.run_dir), starting_parts(settings.data.run_dir)
    wanted = {"remoting": "serve", "http": "serve"} | (
        {"embedded_kafka": "kafka"} if settings.is_kafka_embedded else {}
    )
    for section, part in wanted.items():
        table = getattr(settings, section)
        area = f"{section} port"
        if part in here:
            yield fine(area, str(here[part].get("kafka" if part == "kafka" else section, table.listen_port)))
        elif table.listen_port == 0:
            yield fine(area, "any free one")
        elif part in starting:
            yield fine(area, f"{part} is starting")
        else:
            yield _port(area, section, table.listen_host, table.listen_port)


def _port(area: str, section: str, host: str, port: int) -> Finding:
    try:
        require_free(host, port, section)
    except ConfigError as error:
        remedy = f"stop the process that listens there (`ss -ltnp 'sport = :{port}'`), or set {section}.listen_port"
        if error.key.endswith("listen_host"):
            remedy = f"set {error.key} to an address of this machine (`ip address`), or to 0.0.0.0"
        return fault(area, f"{error.key}: {error.reason}", remedy)
    return fine(area, f"{join_addr(host, port)} is free")


def exposure(settings: Settings) -> Iterator[Finding]:
    """Check whether every peer that reaches this machine may register as a broker."""
    remoting, admin, area = settings.remoting, settings.admin, "remoting access"
    if remoting.listen_host not in _EVERY_ADDRESS:
        yield fine(area, f"remoting listens on {remoting.listen_host} only")
        return
    limits = {
        "admin.broker_networks": admin.broker_networks != AdminSettings().broker_networks,
        "accounts": bool(admin.accounts or admin.accounts_file),
        "TLS": bool(settings.tls.cert_file),
    }
    named = [name for name, is_set in limits.items() if is_set]
    if named:
        yield fine(area, f"remoting listens on all interfaces; set: {', '.join(named)}")
        return
    yield warning(
        area,
        "remoting listens on all interfaces, without broker networks, accounts or TLS: every peer that reaches this "
        "machine can register as a broker",
        "set admin.broker_networks to your brokers' networks, or remoting.listen_host to an address that only they "
        "can reach; see docs/security.md",
    )


def servers(settings: Settings, urls: tuple[str, ...]) -> Iterator[Finding]:
    """Check that every server answers, is ready, and has the same time as this machine."""
    own = []
    if not urls and "serve" in running_parts(settings.data.run_dir):
        scheme = "https" if settings.http.tls else "http"
        own = [f"{scheme}://{server_address(settings, 'http', prefer_running=True)}"]
    for url in (*urls, *own):
        # Its certificate is for the address that others use, not for this machine's loopback.
        reply = query_readiness(url, is_certificate_checked=bool(urls))
        if reply.reason:
            yield fault(
                f"server {url}",
                reply.reason,
                "start it, or see its log; http.listen_host must be an address that is reachable from here",
            )
            continue
        yield _readiness(f"server {url}", reply)
        if reply.ahead_ms is not None and abs(reply.ahead_ms) > _SKEW_WARNED_MS:
            way = "ahead of" if reply.ahead_ms > 0 else "behind"
            yield warning(
                f"server {url}",
                f"its clock is {abs(reply.ahead_ms) / 1000:.0f} s {way} this machine's",
                "run NTP on both",
            )


def _readiness(area: str, reply: Reply) -> Finding:
    try:
        answer: dict[str, Any] = orjson.loads(reply.body)
        ready, reasons = bool(answer["ready"]), "; ".join(map(str, answer["reasons"]))
        places = {str(part["run_book"]): None for part in answer.get("parts", ()) if "run_book" in part}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return fault(area, "another program answers there, not a namesrv-stream server", "correct the address")
    remedy = f"see {', '.join(places) or 'docs/operations.md'}"
    if not ready:
        return fault(area, f"not ready: {reasons}", remedy)
    if not reasons:
        return fine(area, "ready")
    return (warning if FAULTS.isdisjoint(places) else fault)(area, f"ready, but: {reasons}", remedy)
