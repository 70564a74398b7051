"""Who we are to Kafka and how it is reached: `kafka.extra` for kafka-python, and the same in the words of Kafka's own
Java client, which reads the log for Spark.

Source: kafka-python 3, KafkaClient's configuration; kafka.apache.org/documentation, SSL and SASL configuration, KIP-651
(certificates as PEM text).
"""

from pathlib import Path
from typing import Any, Final

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import Settings, is_secret

_FILE: Final = "_file"
#: What says the same in both clients, but for the name.
_SAME: Final = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "ssl_password": "ssl.key.password",
}
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_options(settings: Settings) -> dict[str, Any]:
    """``kafka.extra`` for kafka-python; a secret whose name ends with ``_file`` is what that file holds.

    Raises:
        ConfigError: Such a file cannot be read.
    """
    options: dict[str, Any] = {}
    for name, value in settings.kafka.extra.items():
        plain = name.removesuffix(_FILE)
        if plain != name and is_secret(plain, value):
            options[plain] = _read(str(value), name).strip()
        else:
            options[name] = value
    return options


def spark_options(settings: Settings) -> dict[str, str]:
    """The same for Spark's Kafka source; what ``streaming.extra`` says under ``kafka.…`` wins.

    Secrets stand in the source's options only: never in Spark's own configuration, which is an argument of its JVM.

    Raises:
        ConfigError: A file cannot be read.
    """
    ours = client_options(settings)
    java = {theirs: str(ours[name]) for name, theirs in _SAME.items() if name in ours}
    if module := _LOGIN_MODULES.get(str(ours.get("sasl_mechanism", ""))):
        user, password = (_quoted(str(ours.get(f"sasl_plain_{key}", ""))) for key in ("username", "password"))
        java["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    if "ssl_cafile" in ours:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _read(ours["ssl_cafile"], "ssl_cafile")}
    if "ssl_certfile" in ours:
        key_file = "ssl_keyfile" if "ssl_keyfile" in ours else "ssl_certfile"
        java |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _read(ours["ssl_certfile"], "ssl_certfile"),
            "ssl.keystore.key": _read(ours[key_file], key_file),
        }
    if ours.get("ssl_check_hostname") is False:
        java["ssl.endpoint.identification.algorithm"] = ""
    own = {name: str(value) for name, value in settings.streaming.extra.items() if name.startswith("kafka.")}
    return {f"kafka.{name}": value for name, value in java.items()} | own


def _read(name: object, key: str) -> str:
    try:
        return Path(str(name)).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise ConfigError(str(name), f"kafka.extra.{key}", str(reason)) from None


def _quoted(text: str) -> str:
    """As a value in a JAAS configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
