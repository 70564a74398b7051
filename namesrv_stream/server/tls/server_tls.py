"""Accepts TLS connections with the current certificate, and reloads changed files without closing connections."""

import asyncio
import logging
from pathlib import Path
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import ConfigError, PlainNotServed, RemotingError, TlsBroken, TlsNotServed
from namesrv_stream.metrics import Counters, Samples
from namesrv_stream.server.tls.certificate import files_of, read_certificate
from namesrv_stream.server.tls.transport import TlsTransport
from namesrv_stream.settings import TlsSettings

logger = logging.getLogger(__name__)

_DAY_S: Final = 86_400
#: Every start and reload logs a warning if the certificate expires within this time.
_WARNED_BEFORE_S: Final = 14 * _DAY_S

# Inode, mtime, ctime and size of a file; None if stat fails. Two times are needed: copies may preserve mtime, and a
# change of the permissions changes only ctime.
_Stamp = tuple[int, int, int, int]
_Stamps = tuple[_Stamp | None, ...]

#: Name of the counter for TLS events.
SECURITY_EVENTS: Final = "rocketmq_namesrv_security_events_total"


class ServerTls:
    """TLS of one server. Used by one event loop."""

    def __init__(self, settings: TlsSettings, counters: Counters, clock: Clock) -> None:
        """Read the certificate, if the settings name one; blocks.

        Raises:
            ConfigError: A file cannot be used; the message names it and the setting.
        """
        self._settings = settings
        self._clock = clock
        self._files = files_of(settings) if settings.cert_file else ()
        self._stamps = _stamps(self._files)  # of the files in use
        self._failure = ""  # last logged error for the current files
        self._certificate = read_certificate(settings) if settings.cert_file else None
        self.counters = counters
        self._log_validity()

    def accept(self, below: asyncio.Transport) -> TlsTransport:
        """Return a TLS transport above ``below``, on which a broker or client has begun a handshake.

        Raises:
            TlsNotServed: TLS is disabled or has no certificate.
        """
        if self._settings.mode == "disabled":
            raise TlsNotServed("tls.mode is disabled")
        if self._certificate is None:
            raise TlsNotServed("there is no certificate: set tls.cert_file and tls.key_file")
        return TlsTransport(below, self._certificate.context)

    def accept_http(self, below: asyncio.Transport) -> TlsTransport:
        """Return a TLS transport above ``below`` for the HTTP port; the settings guarantee a certificate."""
        assert self._certificate is not None
        return TlsTransport(below, self._certificate.http_context)

    def refuse_plain(self) -> None:
        """Check whether a broker or client may use a connection without TLS.

        Raises:
            PlainNotServed: The settings require TLS.
        """
        if self._settings.mode == "enforcing":
            raise PlainNotServed

    def established(self) -> None:
        self.counters.count(SECURITY_EVENTS, "tls_handshake", "ok")

    def broken(self, error: RemotingError) -> None:
        """Count an ``error`` that closes a connection, if it concerns TLS."""
        if isinstance(error, PlainNotServed):
            self.counters.count(SECURITY_EVENTS, "tls_plain", "denied")
        elif isinstance(error, TlsNotServed) or (isinstance(error, TlsBroken) and error.is_handshake):
            self.counters.count(SECURITY_EVENTS, "tls_handshake", "failed")

    def sample(self, samples: Samples) -> None:
        if self._certificate is not None:
            end_s = self._certificate.validity.not_after_s
            samples.add("rocketmq_namesrv_tls_certificate_expiry_timestamp_seconds", end_s)
            samples.add("rocketmq_namesrv_tls_certificate_expires_seconds", end_s)

    async def watch(self) -> None:
        """Reload changed files until cancelled. Files that cannot be used are not loaded; the log has the reason."""
        if not self._files:
            return
        changing: _Stamps | None = None
        while True:
            await asyncio.sleep(self._settings.reload_interval_ms / 1000)
            # In a thread, because a file system may hang.
            found = await asyncio.to_thread(_stamps, self._files)
            if found != changing:
                changing, self._failure = found, ""
            # Certificate and key are two files, so both must be unchanged for one interval. A failed reload is retried
            # even for the same files, because the cause may be temporary (too many open files, a hanging file system).
            elif found != self._stamps and await self.reload():
                self._stamps = found

    async def reload(self) -> bool:
        """Read the files again, and return whether they are in use now. Open connections keep their certificate.

        A failure is logged and counted again only when the files or the reason have changed.
        """
        try:
            certificate = await asyncio.to_thread(read_certificate, self._settings)
        except ConfigError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                self.counters.count(SECURITY_EVENTS, "tls_reload", "failed")
                logger.error("certificate not reloaded, the previous one stays in use reason=%s", error)
            return False
        self.counters.count(SECURITY_EVENTS, "tls_reload", "ok")
        self._certificate, self._failure = certificate, ""
        logger.info("certificate reloaded file=%s", self._settings.cert_file)
        self._log_validity()
        return True

    def _log_validity(self) -> None:
        if self._certificate is None:
            return
        now_s, validity = self._clock.now_ms() // 1000, self._certificate.validity
        if now_s < validity.not_before_s:
            logger.warning(
                "certificate is not valid yet: peers that check it refuse it file=%s", self._settings.cert_file
            )
        left_s = validity.not_after_s - now_s
        if left_s < 0:
            logger.warning("certificate has expired: peers that check it refuse it file=%s", self._settings.cert_file)
        elif left_s < _WARNED_BEFORE_S:
            logger.warning("certificate expires soon file=%s days=%d", self._settings.cert_file, left_s // _DAY_S)


def _stamps(files: tuple[Path, ...]) -> _Stamps:
    return tuple(map(_stamp, files))


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()  # of a symbolic link's target; Kubernetes replaces the link
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
