"""Builds SSL contexts from the certificate files; errors name the file and the setting.

``ssl`` does not return the dates in a certificate. Source for reading them: RFC 5280 §4.1 (Certificate, Validity),
X.690 §8.1 (tags and lengths).
"""

import base64
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import TlsSettings

_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
#: Prefix of the settings for connections that the server opens.
CALLS: Final = "advanced.tls.calls_"
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
#: pbeWithSHA1And128BitRC4 and three similar ciphers. Source: RFC 7292, appendix C.
_OLD_CIPHERS: Final = tuple(b"\x06\x0a\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01" + bytes([n]) for n in (1, 2, 5, 6))
#: `openssl pkcs8 -v1 …`, from old instructions, uses ciphers that OpenSSL 3 no longer loads.
_OLD_CIPHER: Final = (
    "its encryption is no longer supported; convert it: openssl pkcs8 -topk8 -v2 aes256 -in OLD -out NEW"
)


_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
#: Elements of a TBSCertificate before its validity: serial number, signature algorithm, issuer. A version may precede.
_BEFORE_VALIDITY: Final = 3
#: The two-digit years of a UTCTime start at 1950.
_UTC_TIME_PIVOT: Final = 50


class Validity(NamedTuple):
    """An interval of wall-clock time in epoch seconds, both ends included."""

    not_before_s: int
    not_after_s: int


class _Element(NamedTuple):
    tag: int
    begin: int
    end: int


def validity_of(der: bytes) -> Validity:
    """Return the validity of one X.509 certificate.

    Raises:
        ValueError: The bytes are not a certificate.
    """
    try:
        certificate = _element(der, 0)
        tbs = _element(der, certificate.begin)
        element = _element(der, tbs.begin)
        if element.tag == _VERSION:
            element = _element(der, element.end)
        for _ in range(_BEFORE_VALIDITY):
            element = _element(der, element.end)
        begin = _element(der, element.begin)
        return Validity(_time(der, begin), _time(der, _element(der, begin.end)))
    except IndexError:
        raise ValueError("a certificate that ends before its validity") from None


def _element(der: bytes, at: int) -> _Element:
    tag, length, begin = der[at], der[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        length = int.from_bytes(der[begin : begin + octets], "big")
        begin += octets
    if begin + length > len(der):
        raise IndexError
    return _Element(tag, begin, begin + length)


def _time(der: bytes, element: _Element) -> int:
    text = der[element.begin : element.end].decode("ascii")
    if element.tag == _UTC_TIME:
        text = ("20" if int(text[:2]) < _UTC_TIME_PIVOT else "19") + text
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError(f"a time with the tag {element.tag}")
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())


class Certificate(NamedTuple):
    """SSL contexts that present a certificate, and the validity of the first certificate in its chain.

    ``http_context`` asks for no client certificate.
    """

    context: ssl.SSLContext
    http_context: ssl.SSLContext
    validity: Validity


class ChainFiles(NamedTuple):
    """The files of a certificate that the server presents; ``section`` is the prefix of their settings."""

    cert_file: str
    key_file: str
    password_file: str
    password: str = ""  # of the key, if there is no file
    section: str = "tls."


def read_certificate(tls: TlsSettings) -> Certificate:
    """Read and check the files of the server's certificate, and ``trust_file`` if it verifies clients; blocks.

    ``tls`` must have a ``cert_file``. ``calls_context`` reads the files for the server's own calls.

    Raises:
        ConfigError: A file cannot be used. The message names it and the setting, but shows no content.
    """
    validity = _validity(tls)
    context, http_context = _context(tls), _context(tls)
    context.verify_mode = _CLIENT_AUTH[tls.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        trust(context, tls.trust_file)
    return Certificate(context, http_context, validity)


def files_of(tls: TlsSettings) -> tuple[Path, ...]:
    """Return the files that ``read_certificate`` reads; a change of any of them requires a reload."""
    names = (tls.cert_file, tls.key_file, tls.key_password_file, tls.trust_file if tls.client_auth != "none" else "")
    return tuple(Path(name) for name in names if name)


def _context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # TLS 1.2 and later, ciphers with forward secrecy
    context.options |= ssl.OP_NO_RENEGOTIATION  # costs as much as a handshake, and a peer may repeat it endlessly
    password = tls.key_password.get_secret_value()
    load_chain(context, ChainFiles(tls.cert_file, tls.key_file, tls.key_password_file, password))
    return context


def load_chain(context: ssl.SSLContext, files: ChainFiles) -> None:
    """Load the certificate that ``context`` presents; blocks.

    Raises:
        ConfigError: A file cannot be used. The message names it and the setting, but shows no content.
    """
    password, key = files.password.encode(), f"{files.section}key_file"
    if files.password_file:
        password = _read(files.password_file, f"{files.section}key_password_file").strip()
    was_asked = False

    def give() -> bytes:  # without this callback, OpenSSL would prompt at the terminal
        nonlocal was_asked
        was_asked = True
        return password

    try:
        context.load_cert_chain(files.cert_file, files.key_file, give)
    except ssl.SSLError as error:
        raise ConfigError(files.key_file, key, _why_no_key(error, files, was_asked, bool(password))) from None
    except OSError as error:
        raise ConfigError(files.key_file, key, error.strerror or str(error)) from None
    except ValueError:  # a password of more than 1 KiB
        raise ConfigError(files.key_file, f"{files.section}key_password_file", "is too long for a password") from None


def _why_no_key(error: ssl.SSLError, files: ChainFiles, was_asked: bool, has_password: bool) -> str:
    section = files.section
    if error.reason == "KEY_VALUES_MISMATCH" or error.reason == "KEY_TYPE_MISMATCH":
        return f"is not the key of the certificate in {section}cert_file={files.cert_file}"
    if was_asked and _has_old_cipher(files.key_file):
        return _OLD_CIPHER
    if was_asked and not has_password:
        return f"is encrypted: set {section}key_password_file"
    if was_asked:
        return "cannot be decrypted with the given password"
    if error.reason and "KEY_TOO_SMALL" in error.reason:
        return "the key, or that of the certificate, is too small to be safe"
    return "holds no private key in PEM form"


def _has_old_cipher(key_file: str) -> bool:
    lines = _read(key_file, "tls.key_file").split(b"\n")
    try:
        der = base64.b64decode(b"".join(line.strip() for line in lines if not line.startswith(b"-----")))
    except ValueError:
        return False
    return any(cipher in der[:64] for cipher in _OLD_CIPHERS)


def _validity(tls: TlsSettings) -> Validity:
    text = _read(tls.cert_file, "tls.cert_file").decode("ascii", "replace")
    begin, end = text.find(_BEGIN), text.find(_END)
    try:
        if not 0 <= begin < end:
            raise ValueError
        return validity_of(ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)]))
    except ValueError:
        raise ConfigError(tls.cert_file, "tls.cert_file", "holds no certificate in PEM form") from None


def trust(context: ssl.SSLContext, trust_file: str, setting: str = "tls.trust_file") -> None:
    """Make ``context`` verify certificates with those in a file; blocks.

    Raises:
        ConfigError: The file cannot be used; the message names it and the setting.
    """
    _read(trust_file, setting)
    try:
        context.load_verify_locations(cafile=trust_file)
    except OSError:  # includes ssl.SSLError
        raise ConfigError(trust_file, setting, "holds no certificates in PEM form") from None


def _read(name: str, key: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(name, key, error.strerror or str(error)) from None


def calls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return a context for connections to brokers, from the current contents of the files; blocks.

    As in RocketMQ, the name in a broker's certificate is not verified, because brokers register arbitrary addresses.

    Raises:
        ConfigError: A file cannot be used; the message names it and the setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if tls.calls_trust_file:
        trust(context, tls.calls_trust_file, f"{CALLS}trust_file")
    else:
        context.verify_mode = ssl.CERT_NONE  # rocketmq 5.3.3, TlsHelper: tls.client.authServer=false
    if tls.calls_cert_file:
        files = (tls.calls_cert_file, tls.calls_key_file, tls.calls_key_password_file)
        load_chain(context, ChainFiles(*files, section=CALLS))
    return context
