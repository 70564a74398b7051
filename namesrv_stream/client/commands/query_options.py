"""What all commands that send requests to name servers share: options, credentials, errors and output."""

import asyncio
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from namesrv_stream.client.admin import ADMIN_TIMEOUT_MS
from namesrv_stream.client.client_connection import client_context
from namesrv_stream.client.client_errors import NotOnAllServers, UnexpectedAnswer
from namesrv_stream.client.name_servers import NameServers, fetch_name_servers, is_address_server, parse_name_servers
from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.remoting.command import AclCredentials, ResponseCode
from namesrv_stream.settings.installation import (
    Configuration,
    ConfOption,
    DataDirOption,
    LongConfOption,
    SetOption,
    check_conf,
    joined,
)

TlsOption = Annotated[
    bool, typer.Option("--tls", envvar="NAMESRV_TLS", help="Use TLS for connections to name servers.")
]
TlsTrustOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-trust",
        envvar="NAMESRV_TLS_TRUST",
        help="Trusted certificates, PEM. Default: the system's.",
        metavar="FILE",
        show_default=False,
    ),
]
TlsCertOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert", envvar="NAMESRV_TLS_CERT", help="Client certificate, PEM.", metavar="FILE", show_default=False
    ),
]
TlsKeyOption = Annotated[
    Path | None,
    typer.Option("--tls-key", envvar="NAMESRV_TLS_KEY", help="Its private key.", metavar="FILE", show_default=False),
]
T = TypeVar("T")
TIMEOUT_MS: Final = ADMIN_TIMEOUT_MS
_ADDRESS_VARIABLE: Final = "NAMESRV_ADDR"
_SECRET_KEY_VARIABLE: Final = "NAMESRV_SECRET_KEY"
_SECURITY_TOKEN_VARIABLE: Final = "NAMESRV_SECURITY_TOKEN"
NameServersOption = Annotated[
    str | None,
    typer.Option(
        "--name-servers",
        "-n",
        help=(
            "Name servers (remoting), or http://host/rocketmq/nsaddr. "
            f"Default: {_ADDRESS_VARIABLE}, or the installation's server."
        ),
        metavar="'HOST:PORT;…'",
        show_default=False,
    ),
]


def requested_tls(
    tls: bool, trust_file: Path | None, cert_file: Path | None, key_file: Path | None
) -> ssl.SSLContext | None:
    """Return the TLS that these flags request; None for plain connections. A file of certificates implies ``--tls``.

    Raises:
        ConfigError: A file cannot be used.
    """
    return client_context(trust_file, cert_file, key_file) if tls or trust_file or cert_file else None


@dataclass(frozen=True, slots=True)
class Target:
    """The name servers that a command uses.

    Attributes:
        name_servers: ``host:port``, several separated by ``;``, or the URL of an address server.
        configuration: Configuration of the installation that the flags name.
        is_named: Whether the user named the name servers by address; otherwise they are those of the installation.
        credentials: Credentials that sign the requests; None for unsigned requests.
        tls: TLS; None for plain connections.
    """

    name_servers: str
    configuration: Configuration
    is_named: bool = False
    credentials: AclCredentials | None = None
    tls: ssl.SSLContext | None = None

    def ask(self, question: Callable[[NameServers], Awaitable[T]]) -> T:
        """Connect, run a query, and close the connections.

        Raises:
            NotPermitted: A name server does not permit the request to this account or address.
        """

        async def ask() -> T:
            is_http = is_address_server(self.name_servers)
            addrs = await fetch_name_servers(self.name_servers) if is_http else parse_name_servers(self.name_servers)
            servers = NameServers(addrs, credentials=self.credentials, tls=self.tls)
            try:
                return await question(servers)
            finally:
                await servers.close()

        try:
            return asyncio.run(ask())
        except (UnexpectedAnswer, NotOnAllServers) as error:
            if ResponseCode.NO_PERMISSION.name in str(error):
                raise NotPermitted(f"{error}; {self._permission_hint()}") from None
            raise

    def _permission_hint(self) -> str:
        if self.credentials is None:
            return "this request was not signed: see --access-key and --secret-key-file"
        account = self.credentials.access_key
        return f"this request was signed as {account}: check that the name server has this account with the same secret"


class NotPermitted(NamesrvStreamError):
    """A name server does not permit a request."""


def name_server_command(command: Callable[..., None], *, is_of_mqadmin: bool = False) -> Callable[..., None]:
    """Return a command-line command that makes the target from its flags and calls ``command(target, …)``.

    Args:
        command: Its parameters besides the target become flags as well.
        is_of_mqadmin: Whether the command has mqadmin's flags, so that ``-c`` is not short for ``--conf``.
    """

    def run(
        *,
        name_servers: NameServersOption = None,
        conf: ConfOption = None,
        data_dir: DataDirOption = None,
        sets: SetOption = None,
        access_key: Annotated[
            str | None,
            typer.Option(
                "--access-key", envvar="NAMESRV_ACCESS_KEY", help="Sign requests as this account.", metavar="KEY"
            ),
        ] = None,
        secret_key_file: Annotated[
            Path | None,
            typer.Option(
                "--secret-key-file",
                help=f"File with its secret; or set {_SECRET_KEY_VARIABLE}.",
                metavar="FILE",
                dir_okay=False,
            ),
        ] = None,
        tls: TlsOption = False,
        tls_trust: TlsTrustOption = None,
        tls_cert: TlsCertOption = None,
        tls_key: TlsKeyOption = None,
        **own: Any,
    ) -> None:
        for name, value in own.items():
            if isinstance(value, str) and not value.isascii():
                _check_text(name, value)
        check_conf(conf, "cluster" in own)
        configuration = Configuration(conf, data_dir, sets or ())
        named = named_name_servers(name_servers, configuration)
        target = Target(
            named or configuration.name_server(),
            configuration,
            named is not None,
            _credentials(access_key, secret_key_file),
            requested_tls(tls, tls_trust, tls_cert, tls_key),
        )
        command(target, **own)

    return joined(run, command, **({"conf": LongConfOption} if is_of_mqadmin else {}))


def named_name_servers(flag: str | None, configuration: Configuration) -> str | None:
    """Return the name servers that ``-n`` or NAMESRV_ADDR names; None for those of the installation.

    A flag that names an installation has priority over the variable.
    """
    if flag:
        return flag
    return None if configuration.is_explicit else os.environ.get(_ADDRESS_VARIABLE) or None


def chosen_name_servers(flag: str | None, configuration: Configuration) -> str:
    """Return the name servers that ``-n`` or NAMESRV_ADDR names, otherwise those of the installation.

    Raises:
        ConfigError: The configuration is invalid.
    """
    return named_name_servers(flag, configuration) or configuration.name_server()


def emit(text: str) -> None:
    """Print an answer."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _check_text(name: str, value: str) -> None:
    """Refuse text from the terminal that UTF-8 cannot encode."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError("command line", name.upper(), "is not UTF-8 text") from None


def _credentials(access_key: str | None, secret_key_file: Path | None) -> AclCredentials | None:
    secret = os.environ.get(_SECRET_KEY_VARIABLE)
    if secret_key_file is not None:
        try:
            secret = secret_key_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not text"
            raise ConfigError(str(secret_key_file), "--secret-key-file", str(reason)) from None
    if not access_key and secret_key_file is None:
        return None
    if not access_key:
        raise ConfigError("command line", "--access-key", "is missing beside --secret-key-file")
    if not secret:
        raise ConfigError("command line", "--secret-key-file", f"is missing or empty; or set {_SECRET_KEY_VARIABLE}")
    return AclCredentials(access_key, secret, os.environ.get(_SECURITY_TOKEN_VARIABLE) or None)
