"""TLS records over a transport: the end of the handshake, incomplete records, and broken connections."""

import asyncio
import ssl

import pytest

from namesrv_stream.errors import TlsBroken
from namesrv_stream.server.tls import TlsTransport, read_certificate
from namesrv_stream.settings import TlsSettings
from tests.support.certificates import Authority

_RECORD_BYTES = 16_384


class Below(asyncio.Transport):
    """A transport that keeps the bytes written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


class Pair:
    """A client and the transport under test; the test moves the bytes from one to the other.

    Attributes:
        client: The TLS object of the client.
        below: The transport with the server's records.
        server: The transport under test.
    """

    def __init__(self, authority: Authority, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        cert, key = authority.issue()
        context = authority.client_context()
        context.maximum_version = version
        self._to_client, self._from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self._to_client, self._from_client, server_hostname="127.0.0.1")
        self.below = Below()
        self.server = TlsTransport(
            self.below, read_certificate(TlsSettings(cert_file=str(cert), key_file=str(key))).context
        )

    def shake_hands(self) -> None:
        """Run the handshake until the client is done. Its last message may not be sent yet."""
        while True:
            try:
                self.client.do_handshake()
                return
            except ssl.SSLWantReadError:
                self.server.received(self.sent())
                self._to_client.write(self.below.written)
                self.below.written = b""

    def establish(self) -> None:
        self.shake_hands()
        self.server.received(self.sent())
        assert self.server.is_established

    def sent(self) -> bytes:
        """Return the bytes that the client sends."""
        return self._from_client.read()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_directly_after_the_last_message_of_a_handshake_are_not_part_of_it(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    pair = Pair(authority, version)
    pair.shake_hands()
    pair.client.write(b"x" * 200_000)
    assert pair.server.received(pair.sent()) == b"x" * 200_000
    assert pair.server.held_bytes == 0


def test_a_handshake_with_too_many_bytes_is_refused(authority: Authority) -> None:
    server = Pair(authority).server
    record = b"\x16\x03\x01\x40\x00" + b"\x01\x01\xd4\xc0" + bytes(0x4000 - 4)
    for number in range(3):
        assert server.received(record) == b""
        assert server.held_bytes == (number + 1) * len(record)
    with pytest.raises(TlsBroken, match="its handshake exceeds 65536 bytes") as broken:
        server.received(record)
    assert broken.value.is_handshake


def test_close_notify_during_the_handshake_is_a_failed_handshake(authority: Authority) -> None:
    pair = Pair(authority)
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.do_handshake()
    close_notify = bytes([21, 3, 3, 0, 2, 1, 0])
    with pytest.raises(TlsBroken) as refused:
        pair.server.received(pair.sent() + close_notify)
    assert refused.value.is_handshake


def test_an_incomplete_record_counts_as_held_bytes(authority: Authority) -> None:
    pair = Pair(authority)
    pair.establish()
    assert pair.server.held_bytes == 0
    pair.client.write(b"y" * _RECORD_BYTES)
    record = pair.sent()
    for end in (1, 5, 1_000, len(record) - 1):
        assert pair.server.received(record[pair.server.held_bytes : end]) == b""
        assert pair.server.held_bytes == end
    assert pair.server.received(record[-1:]) == b"y" * _RECORD_BYTES
    assert pair.server.held_bytes == 0


def test_an_incomplete_record_after_a_whole_one_counts_as_held_bytes(authority: Authority) -> None:
    pair = Pair(authority)
    pair.establish()
    pair.client.write(b"whole")
    whole = pair.sent()
    pair.client.write(b"half" * 1_000)
    assert pair.server.received(whole + pair.sent()[:3_000]) == b"whole"
    assert pair.server.held_bytes == 3_000


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_content_of_valid_records_before_a_broken_one_is_kept(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    pair = Pair(authority, version)
    pair.establish()
    pair.client.write(b"x" * 2 * _RECORD_BYTES)
    with pytest.raises(TlsBroken) as broken:
        pair.server.received(pair.sent() + b"\x17\x03\x03\x00\x40" + b"z" * 64)
    assert broken.value.content == b"x" * 2 * _RECORD_BYTES
    assert not broken.value.is_handshake


def test_a_late_answer_to_a_broken_connection_is_dropped_without_an_error(authority: Authority) -> None:
    """For example the answer to an operator's change, which waited for the log."""
    pair = Pair(authority)
    pair.establish()
    with pytest.raises(TlsBroken):
        pair.server.received(b"\x17\x03\x03\x00\x40" + b"z" * 64)
    alert = pair.below.written
    assert alert  # the alert
    pair.server.write(b"answer")
    assert pair.server.received(b"\x17\x03\x03\x00\x40" + b"z" * 64) == b""
    assert pair.below.written == alert
    pair.server.close()
    assert pair.below.is_closed
