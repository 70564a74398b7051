"""RocketMQ's own keys for TLS: which of ours each is, and why others have no meaning here.

They are system properties in Java, and keys of the file ``tls.config.file``; here they stand in either file. Apart from
the other keys, since GET_NAMESRV_CONFIG tells nothing of them. Source: rocketmq 5.3.3, TlsSystemConfig, TlsHelper.
"""

from collections.abc import Mapping
from typing import Final

from namesrv_stream.settings.rocketmq_keys import Counterpart

TLS_COUNTERPARTS: Final[Mapping[str, Counterpart]] = {
    "tls.server.mode": Counterpart("tls", "mode"),
    "tls.server.certPath": Counterpart("tls", "cert_file"),
    "tls.server.keyPath": Counterpart("tls", "key_file"),
    "tls.server.keyPassword": Counterpart("tls", "key_password"),
    "tls.server.need.client.auth": Counterpart("tls", "client_auth"),
    "tls.server.trustCertPath": Counterpart("tls", "trust_file"),
    "tls.config.file": Counterpart("tls", "config_file"),
    "tls.enable": Counterpart("tls", "calls"),
    "tls.client.trustCertPath": Counterpart("tls", "calls_trust_file"),
    "tls.client.certPath": Counterpart("tls", "calls_cert_file"),
    "tls.client.keyPath": Counterpart("tls", "calls_key_file"),
}

TLS_WITHOUT_MEANING: Final[Mapping[str, str]] = {
    "tls.test.mode.enable": "no certificate is made up here: set tls.server.certPath and tls.server.keyPath",
    "tls.server.authClient": "a client's certificate, where one is asked for, is always checked",
    "tls.client.authServer": "a broker's certificate is checked where tls.client.trustCertPath says by which ones",
    "tls.client.keyPassword": "put it into a file of its own, and name that by tls.calls_key_password_file",
}

_AGREED: Final = frozenset({("tls.test.mode.enable", "false"), ("tls.server.authClient", "true")})


def is_agreed(name: str, text: str, properties: Mapping[str, str]) -> bool:
    """Whether a key without meaning says what is so here in any case: nobody need be told.

    Args:
        name: The key.
        text: Its value, in small letters.
        properties: All of its file.
    """
    if name == "tls.client.authServer":
        return text == ("true" if properties.get("tls.client.trustCertPath", "").strip() else "false")
    return (name, text) in _AGREED
