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
}

_OF_CLIENTS: Final = "it is for clients"

TLS_WITHOUT_MEANING: Final[Mapping[str, str]] = {
    "tls.enable": f"{_OF_CLIENTS}; a server looks at tls.server.mode",
    "tls.test.mode.enable": "no certificate is made up here: set tls.server.certPath and tls.server.keyPath",
    "tls.server.authClient": "a client's certificate, where one is asked for, is always checked",
    **{
        f"tls.client.{key}": _OF_CLIENTS
        for key in ("keyPath", "keyPassword", "certPath", "authServer", "trustCertPath")
    },
}

#: Values of keys without meaning that say what is so here in any case: nobody need be told.
AGREED: Final = frozenset({("tls.test.mode.enable", "false"), ("tls.server.authClient", "true")})
