"""An error in the files of a certificate names file and setting, and never shows their content."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.metrics import Counters
from namesrv_stream.server.tls import ServerTls, read_certificate
from namesrv_stream.server.tls.certificate import validity_of
from namesrv_stream.settings import TlsSettings
from tests.support.certificates import Authority
from tests.support.clocks import ManualClock

PASSWORD = "Tr0ub4dor"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def refusal(**tls: object) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        read_certificate(TlsSettings.model_validate({name: str(value) for name, value in tls.items()}))
    assert PASSWORD not in str(refused.value)
    assert refused.value.exit_code == 2
    return refused.value


def test_a_valid_certificate_and_key_are_read(authority: Authority) -> None:
    cert, key = authority.issue()
    certificate = read_certificate(TlsSettings(cert_file=str(cert), key_file=str(key)))
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert certificate.context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("by_file", [True, False])
def test_an_encrypted_key_is_read_with_its_password(authority: Authority, tmp_path: Path, by_file: bool) -> None:
    cert, key = authority.issue("encrypted", password=PASSWORD)
    holder = tmp_path / "password"
    holder.write_text(PASSWORD + "\n")
    more = {"key_password_file": str(holder)} if by_file else {"key_password": PASSWORD}
    read_certificate(TlsSettings.model_validate({"cert_file": str(cert), "key_file": str(key), **more}))


def test_a_missing_certificate_is_named(authority: Authority, tmp_path: Path) -> None:
    error = refusal(cert_file=tmp_path / "absent", key_file=authority.issue().key)
    assert (error.source, error.key) == (str(tmp_path / "absent"), "tls.cert_file")
    assert error.reason == "No such file or directory"


def test_a_missing_key_is_named(authority: Authority, tmp_path: Path) -> None:
    error = refusal(cert_file=authority.issue().cert, key_file=tmp_path / "absent")
    assert (error.source, error.key) == (str(tmp_path / "absent"), "tls.key_file")


def test_an_invalid_certificate_is_named(authority: Authority, tmp_path: Path) -> None:
    none = tmp_path / "none.pem"
    none.write_text(f"-----BEGIN CERTIFICATE-----\n{PASSWORD}\n-----END CERTIFICATE-----\n")
    error = refusal(cert_file=none, key_file=authority.issue().key)
    assert (error.source, error.key, error.reason) == (str(none), "tls.cert_file", "holds no certificate in PEM form")


def test_a_truncated_certificate_is_named(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue()
    first, *middle = cert.read_text().split("-----END")[0].splitlines()
    cut = tmp_path / "cut.pem"
    cut.write_text("\n".join([first, *middle[: len(middle) // 2], "-----END CERTIFICATE-----", ""]))
    error = refusal(cert_file=cut, key_file=key)
    assert (error.source, error.key) == (str(cut), "tls.cert_file")


def test_an_invalid_key_is_named(authority: Authority, tmp_path: Path) -> None:
    none = tmp_path / "none.key"
    none.write_text(PASSWORD)
    error = refusal(cert_file=authority.issue().cert, key_file=none)
    assert (error.source, error.key, error.reason) == (str(none), "tls.key_file", "holds no private key in PEM form")


def test_a_key_of_another_certificate_names_both(authority: Authority) -> None:
    cert, other = authority.issue().cert, authority.issue("other").key
    error = refusal(cert_file=cert, key_file=other)
    assert (error.source, error.key) == (str(other), "tls.key_file")
    assert error.reason == f"is not the key of the certificate in tls.cert_file={cert}"


def test_an_error_about_an_encrypted_key_without_a_password_names_the_setting(authority: Authority) -> None:
    cert, key = authority.issue("encrypted", password=PASSWORD)
    error = refusal(cert_file=cert, key_file=key)
    assert error.reason == "is encrypted: set tls.key_password_file"


def test_a_wrong_password_is_named_and_not_shown(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("encrypted", password=PASSWORD)
    assert (
        "cannot be decrypted with the given password"
        in refusal(cert_file=cert, key_file=key, key_password=PASSWORD + "!").reason
    )
    wrong = tmp_path / "wrong"
    wrong.write_text(PASSWORD + "?")
    assert (
        "cannot be decrypted with the given password"
        in refusal(cert_file=cert, key_file=key, key_password_file=wrong).reason
    )


def test_a_missing_password_file_is_named(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("encrypted", password=PASSWORD)
    error = refusal(cert_file=cert, key_file=key, key_password_file=tmp_path / "absent")
    assert (error.source, error.key) == (str(tmp_path / "absent"), "tls.key_password_file")


@pytest.mark.parametrize("text", [None, "", PASSWORD])
def test_a_trust_file_without_a_certificate_is_named(authority: Authority, tmp_path: Path, text: str | None) -> None:
    cert, key = authority.issue()
    trust = tmp_path / "trust.pem"
    if text is not None:
        trust.write_text(text)
    error = refusal(cert_file=cert, key_file=key, client_auth="require", trust_file=trust)
    assert (error.source, error.key) == (str(trust), "tls.trust_file")


def test_an_error_about_a_key_with_old_encryption_shows_how_to_encrypt_it_again(
    authority: Authority, tmp_path: Path
) -> None:
    """The commands in RocketMQ's documentation make keys with PBE-SHA1-RC4-128."""
    old = tmp_path / "old.key"
    old.write_text(_OLD_KEY)
    cert, _ = authority.issue("old")
    error = refusal(cert_file=cert, key_file=old, key_password=PASSWORD)
    assert "openssl pkcs8 -topk8 -v2 aes256" in error.reason


@pytest.mark.parametrize("year", [2031, 2049, 2050, 2077])
def test_the_expiry_of_a_certificate_is_read_in_both_forms_of_time(authority: Authority, year: int) -> None:
    end = datetime(year, 5, 6, 7, 8, 9, tzinfo=UTC)
    cert, _ = authority.issue("until", not_after=end)
    der = ssl.PEM_cert_to_DER_cert(cert.read_text().partition("-----END CERTIFICATE-----")[0] + _END)
    assert validity_of(der).not_after_s == int(end.timestamp())


_END = "-----END CERTIFICATE-----"


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x03\x30\x01\x02", bytes(64)])
def test_the_validity_of_an_invalid_certificate_is_an_error(der: bytes) -> None:
    with pytest.raises(ValueError, match=r"certificate|time"):
        validity_of(der)


@pytest.mark.parametrize(("days", "warning"), [(-1, "has expired"), (3, "expires soon"), (100, "")])
def test_a_certificate_that_has_expired_or_expires_soon_causes_a_warning(
    authority: Authority, caplog: pytest.LogCaptureFixture, days: int, warning: str
) -> None:
    clock = ManualClock()
    clock.advance(int(datetime.now(UTC).timestamp() * 1000) - clock.now_ms())
    cert, key = authority.issue("ends", days=days)
    ServerTls(TlsSettings(cert_file=str(cert), key_file=str(key)), Counters(), clock)
    assert (warning in caplog.text) if warning else not caplog.text


_OLD_KEY = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGrMBwGCiqGSIb3DQEMAQEwDgQIp46snRpeyVACAggABIGKAjvscW8tMSsWENsc
SO8iYkzqsMf71XQ51UzbjM5YaS48hoWKBuDHKqCXnVQzt2r0y6yr6tYm+8+gziaR
tSe7RaCUOO17HvSx8Qaj2mNe39JAII5zhIAHMbCJJDov187ojTQxM8OMjlfn5D+L
az8pS5kFtIe805AELXuPY37+498UJywmjIQ+vrU+
-----END ENCRYPTED PRIVATE KEY-----
"""
