"""TLS of connections to name servers: whom they trust, and with which certificate they show who they are."""

import ssl
from pathlib import Path

from namesrv_stream.errors import ConfigError


def client_context(
    trust_file: Path | None = None, cert_file: Path | None = None, key_file: Path | None = None
) -> ssl.SSLContext:
    """For connections that check the server's certificate and its name. Blocks.

    Differs from RocketMQ, whose clients by default trust every server and never look at its name.

    Args:
        trust_file: Certificates to trust, PEM; None for those of the system.
        cert_file: Our certificate, PEM; None to show none.
        key_file: Its key, without a password; None where it is in ``cert_file``.

    Raises:
        ConfigError: A file cannot be used; names it.
    """
    try:
        context = ssl.create_default_context(cafile=str(trust_file) if trust_file else None)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(str(trust_file), "--tls-trust", _reason_of(error, "certificates")) from None
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, key_file, password=lambda: b"")
        except OSError as error:
            raise ConfigError(
                str(key_file or cert_file), "--tls-cert", _reason_of(error, "certificate or key")
            ) from None
    return context


def _reason_of(error: OSError, what: str) -> str:
    return f"holds no {what} that can be used" if isinstance(error, ssl.SSLError) else str(error.strerror)
