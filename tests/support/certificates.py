"""Certificates for tests, issued on demand by an authority of the test."""

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class KeyPair(NamedTuple):
    """A certificate chain and its private key in PKCS #8, as RocketMQ's Java programs read it; PEM files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates into a folder.

    Attributes:
        trust_file: Its own certificate.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.trust_file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.trust_file))

    def issue(
        self, name: str = "server", *, password: str = "", not_after: datetime | None = None, days: int | None = None
    ) -> KeyPair:
        """Issue a certificate for this machine into files called ``name``; existing files are replaced.

        Args:
            name: Name of the files.
            password: Password that encrypts the key.
            not_after: End of its validity; by default in a year.
            days: Days of its validity from now on, instead of ``not_after``.
        """
        now = datetime.now(UTC)
        end = not_after or now + timedelta(days=365 if days is None else days)
        leaf = self._ca.issue_cert(
            "localhost", "127.0.0.1", not_before=min(now, end) - timedelta(days=2), not_after=end, common_name=name
        )
        pair = KeyPair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        pem = key.private_bytes(
            Encoding.PEM,
            PrivateFormat.PKCS8,
            BestAvailableEncryption(password.encode()) if password else NoEncryption(),
        )
        _replace(pair.cert, chain)
        _replace(pair.key, pem)
        return pair

    def client_context(self, pair: KeyPair | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority, with a client certificate if one is given."""
        context = ssl.create_default_context(cafile=str(self.trust_file))
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context


def serial_of(context: ssl.SSLContext, addr: str) -> str:
    """Return the serial number of the certificate that a server sends over a new connection."""
    host, _, port = addr.rpartition(":")
    with _connected(context, host, int(port)) as tls:
        found = tls.getpeercert()
    assert found is not None
    return str(found["serialNumber"])


@contextlib.contextmanager
def _connected(context: ssl.SSLContext, host: str, port: int) -> Iterator[ssl.SSLSocket]:
    with socket.create_connection((host, port), 10) as plain, context.wrap_socket(plain, server_hostname=host) as tls:
        yield tls


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically, as operators should: a reader sees the old or the new file, never half of it."""
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(data)
    beside.chmod(0o600)
    os.replace(beside, path)
