"""Checks of settings against each other, their comparison with the settings in the log, and files of address views.

Keys are spelled as in the code (``section.key``), without the prefix ``advanced`` that users write.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from namesrv_stream.errors import ConfigError
from namesrv_stream.route.address_views import parse_view
from namesrv_stream.route.liveness_settings import FoldSettings, SettingValue, setting_text
from namesrv_stream.settings.names import public_key
from namesrv_stream.settings.sections import Settings

#: Source of a ``settings_changed`` event that carries values of the configuration.
SOURCE: Final = "config"


def check_together(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (key, reason) for every setting that cannot work with the value of another one, or is malformed."""
    yield from _check_liveness(settings)
    kafka = settings.kafka
    if kafka.broker_events_topic == kafka.dead_letter_topic:
        yield "kafka.dead_letter_topic", "must differ from kafka.broker_events_topic"
    if settings.is_kafka_embedded and kafka.replication_factor != 1:
        yield "kafka.replication_factor", "the embedded Kafka is one node: only 1 works"
    if kafka.max_message_bytes <= settings.remoting.max_frame_bytes:
        # A registration is logged in full, with an envelope around it.
        yield (
            "kafka.max_message_bytes",
            f"must exceed advanced.remoting.max_frame_bytes ({settings.remoting.max_frame_bytes})",
        )
    if settings.streaming.vacuum_retention_ms > settings.streaming.changes_retention_ms:
        yield "streaming.vacuum_retention_ms", "must not exceed streaming.changes_retention_ms"
    if settings.remoting.partial_frames_bytes < settings.remoting.max_frame_bytes:
        # Otherwise the largest allowed frame could never arrive.
        yield (
            "remoting.partial_frames_bytes",
            f"must have room for one frame ({settings.remoting.max_frame_bytes} bytes)",
        )
    if settings.webhook.url and settings.webhook.url_file:
        yield "webhook.url_file", "webhook.url is set too: set only one of them"
    try:
        _ = settings.data.store
    except ValueError as error:
        yield "data.tables", str(error)
    yield from _check_tls(settings)
    yield from _check_ports(settings)


def doubtful(settings: Settings) -> Iterator[str]:
    """Yield warnings about values that work but are probably a mistake; each names the key."""
    if settings.tls.client_auth == "require" and settings.tls.mode != "enforcing":
        yield (
            f"tls.client_auth: require applies to TLS connections only; with tls.mode={settings.tls.mode} clients can"
            " also connect without TLS: set tls.mode to enforcing to refuse them"
        )


def _check_tls(settings: Settings) -> Iterator[tuple[str, str]]:
    tls = settings.tls
    for cert, key in (("cert_file", "key_file"), ("calls_cert_file", "calls_key_file")):
        has_cert, has_key = bool(getattr(tls, cert)), bool(getattr(tls, key))
        if has_cert != has_key:
            lacks, has = (key, cert) if has_cert else (cert, key)
            yield f"tls.{lacks}", f"is missing beside {public_key(f'tls.{has}')}"
    needs_certificate = {"tls.mode=enforcing": tls.mode == "enforcing", "http.tls=true": settings.http.tls}
    for why in (text for text, needs in needs_certificate.items() if needs and not tls.cert_file):
        yield "tls.cert_file", f"{why} needs a certificate: set tls.cert_file and tls.key_file"
    if tls.client_auth != "none" and not tls.trust_file:
        # Differs from RocketMQ, which without tls.server.authClient=true accepts any certificate.
        yield (
            "tls.trust_file",
            f"tls.client_auth={tls.client_auth} needs trusted certificates to verify clients' certificates",
        )
    if tls.key_password_file and tls.key_password.get_secret_value():
        yield "tls.key_password_file", "advanced.tls.key_password is set too: set only one of them"


def _check_liveness(settings: Settings) -> Iterator[tuple[str, str]]:
    liveness = settings.liveness
    least_ms, most_ms = liveness.min_timeout_ms, liveness.max_timeout_ms
    if not least_ms <= liveness.default_timeout_ms <= most_ms:
        yield (
            "liveness.default_timeout_ms",
            f"must lie between min_timeout_ms ({least_ms}) and max_timeout_ms ({most_ms})",
        )
    if liveness.max_gap_ms < 2 * liveness.tick_interval_ms:
        # Otherwise the time before a late tick would not count as observed time, and brokers would age too slowly.
        yield "liveness.max_gap_ms", f"must be at least two ticks ({2 * liveness.tick_interval_ms} ms)"
    if 0 < settings.server.hang_timeout_ms < 4 * liveness.tick_interval_ms:
        # The server reports to its parent process at each tick.
        yield "server.hang_timeout_ms", f"must be 0 or at least four ticks ({4 * liveness.tick_interval_ms} ms)"
    if liveness.server_silent_ms <= liveness.max_gap_ms:
        yield "liveness.server_silent_ms", f"must exceed advanced.liveness.max_gap_ms ({liveness.max_gap_ms})"
    if liveness.server_lost_ms <= liveness.server_silent_ms:
        yield "liveness.server_lost_ms", f"must exceed advanced.liveness.server_silent_ms ({liveness.server_silent_ms})"


def _check_ports(settings: Settings) -> Iterator[tuple[str, str]]:
    taken: dict[int, str] = {}
    for key, port in (
        ("remoting.listen_port", settings.remoting.listen_port),
        ("http.listen_port", settings.http.listen_port),
        ("embedded_kafka.listen_port", settings.embedded_kafka.listen_port if settings.is_kafka_embedded else 0),
        *(("remoting.view_listeners", port) for port in settings.remoting.port_of_view_listener.values()),
    ):
        if port and port in taken:
            yield key, f"port {port} is also {taken[port]}"
        taken[port] = key


def changed_settings(settings: Settings, logged: Mapping[str, str]) -> dict[str, SettingValue]:
    """Return the fold's settings whose configured value is not the logged one, or not the default if none is logged.

    Args:
        settings: The configuration.
        logged: Name → JSON text of the configured values that were logged last.
    """
    configured = settings.liveness.model_dump()
    known = {name: setting_text(value) for name, value in asdict(FoldSettings()).items()} | dict(logged)
    return {n: v for n, v in configured.items() if n in known and setting_text(v) != known[n]}


def named_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yield the key, as users write it, and the path of every file that a setting names."""
    for section, table in settings.model_dump().items():
        for key, value in table.items():
            options = value.items() if key == "extra" else ()
            named = [(f"{section}.{key}.{name}", option) for name, option in options if name.lower().endswith("file")]
            if key.endswith("_file"):
                named = [(public_key(f"{section}.{key}"), value)]
            elif key == "view_files":
                named = [(public_key(f"{section}.{key}"), file) for file in value]
            yield from ((dotted, Path(str(file)).expanduser()) for dotted, file in named if file)


def read_view_file(file: Path, name: str, key: str) -> str:
    """Return the document of an address view as JSON text, from a JSON or TOML file; ``key`` is for errors.

    Raises:
        ConfigError: The file cannot be read, or contains no valid view.
    """
    try:
        text = file.read_text(encoding="utf-8")
        document = json.dumps(tomllib.loads(text), default=str) if file.suffix == ".toml" else text
        parse_view(name, document)
    except OSError as error:
        raise ConfigError(str(file), key, error.strerror or str(error)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), key, f"cannot be read: {error}") from None
    except ValueError as error:
        raise ConfigError(str(file), key, str(error)) from None
    return document
