"""Which settings are secrets, how they reach a child process, and the accounts of RocketMQ's ACL.

A secret reaches a child in its environment, never in a file or an argument.
"""

import json
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import SecretStr, ValidationError

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings.names import public_path
from namesrv_stream.settings.sections import AdminSettings, Settings

ENVIRONMENT_PREFIX: Final = "NAMESRV_STREAM__"

#: Names of passed-through options that contain a secret: sasl_plain_password, spark.hadoop.fs.s3a.secret.key, …
#: Rather too many than too few: a misspelt one is still a secret.
_SECRET_NAME: Final = re.compile(
    r"pass|pasw|pwd|secret|token|credential|jaas|(account|access|private|api|keystore|encryption|customer)[._-]?key|\bsas\b",
    re.IGNORECASE,
)
#: Suffix of an option whose value is the path of a file that contains the secret: sasl_plain_password_file.
_FILE: Final = "_file"
#: A user's password in a URL: proxy_url, spark.hadoop.fs.defaultFS, …
_URL_WITH_PASSWORD: Final = re.compile(r"://[^/@\s:]*+:[^/@\s]*+@")
#: Part of the text of a private key, whatever its option is called.
_PRIVATE_KEY: Final = "PRIVATE KEY-----"
_TABLES: Final = (("kafka", "extra"), ("streaming", "extra"), ("data", "extra"))


def is_secret(name: str, value: object) -> bool:
    """Whether the value of an account or of a passed-through option must not be shown.

    Args:
        name: The last part of its key.
    """
    if isinstance(value, SecretStr):
        return True
    if isinstance(value, bool):
        return False
    text = str(value)
    is_named = bool(_SECRET_NAME.search(name)) and not name.lower().endswith(_FILE)
    return is_named or bool(_URL_WITH_PASSWORD.search(text)) or _PRIVATE_KEY in text


def passed_through_secrets(settings: Settings) -> dict[str, str]:
    """Return environment variables with the secret options of Kafka, Spark and the tables, for all child processes."""
    variables = {}
    for section, table in _TABLES:
        for name, value in getattr(getattr(settings, section), table).items():
            if is_secret(name, value):
                # As TOML spells it: a password of digits stays a text.
                variables[_variable(section, table, name)] = json.dumps(value, ensure_ascii=False)
    return variables


def server_secrets(settings: Settings) -> dict[str, str]:
    """Return environment variables with the accounts and the TLS key's password, for the server's process only."""
    accounts, password = settings.admin.accounts, settings.tls.key_password.get_secret_value()
    variables = {_variable("admin", "accounts", key): secret.get_secret_value() for key, secret in accounts.items()}
    return variables | ({_variable("tls", "key_password"): password} if password else {})


def _variable(section: str, key: str, name: str = "") -> str:
    path = (*public_path((section, key)), *([name] if name else []))
    return ENVIRONMENT_PREFIX + "__".join(part if part == name else part.upper() for part in path)


class Accounts(NamedTuple):
    """AccessKey → secret, and warnings about the file that they come from."""

    secrets: dict[str, str]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Accounts({len(self.secrets)})"


def read_accounts(admin: AdminSettings) -> Accounts:
    """Return the accounts in the configuration and in ``accounts_file``; the former win if both have an AccessKey.

    The file has lines ``AccessKey=SecretKey``. Empty lines, lines that begin with ``#``, and blanks around
    AccessKey and SecretKey are ignored.

    Raises:
        ConfigError: The file cannot be read, or a line is not an account; the error never shows the line.
    """
    own = {key: secret.get_secret_value() for key, secret in admin.accounts.items()}
    if not admin.accounts_file:
        return Accounts(own, ())
    path = Path(admin.accounts_file)
    try:
        is_open = bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(str(path), "admin.accounts_file", error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "admin.accounts_file", f"not UTF-8: {error.reason}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            key, secret = _account(path, number, line)
            found[key] = secret
    warnings = (f"{path}: admin.accounts_file: other users can read it; run chmod 600",) if is_open else ()
    return Accounts(found | own, warnings)


def _account(path: Path, number: int, line: str) -> tuple[str, str]:
    key, _, secret = (part.strip() for part in line.partition("="))
    try:
        AdminSettings.model_validate({"accounts": {key: secret}})
    except ValidationError:
        reason = f"line {number} is not an account, expected AccessKey=SecretKey"
        raise ConfigError(str(path), "admin.accounts_file", reason) from None
    return key, secret
