"""The flags of all commands that may speak TLS with name servers."""

import ssl
from pathlib import Path
from typing import Annotated

import typer

from namesrv_stream.client.tls import client_context

TlsOption = Annotated[bool, typer.Option("--tls", envvar="NAMESRV_TLS", help="Speak TLS with name servers.")]
TlsTrustOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-trust",
        envvar="NAMESRV_TLS_TRUST",
        help="Certificates to trust, PEM; else the system's.",
        metavar="FILE",
        show_default=False,
    ),
]
TlsCertOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert", envvar="NAMESRV_TLS_CERT", help="Certificate to show, PEM.", metavar="FILE", show_default=False
    ),
]
TlsKeyOption = Annotated[
    Path | None,
    typer.Option("--tls-key", envvar="NAMESRV_TLS_KEY", help="Its private key.", metavar="FILE", show_default=False),
]


def asked_for(
    tls: bool, trust_file: Path | None, cert_file: Path | None, key_file: Path | None
) -> ssl.SSLContext | None:
    """How to speak TLS, by these flags; None for plain. A file to trust or to show asks for TLS, too.

    Raises:
        ConfigError: A file cannot be used.
    """
    return client_context(trust_file, cert_file, key_file) if tls or trust_file or cert_file else None
