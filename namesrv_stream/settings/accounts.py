"""RocketMQ ACL accounts: those of the configuration, and those of the file that it names."""

import stat
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings.sections import AdminSettings


class Accounts(NamedTuple):
    """AccessKey to secret, and what an operator should know of where they are kept."""

    secrets: dict[str, str]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Accounts({len(self.secrets)})"


def read_accounts(admin: AdminSettings) -> Accounts:
    """All accounts; where both know an AccessKey, the configuration's own holds. Reads ``accounts_file``.

    The file has lines ``AccessKey=SecretKey``; empty ones and those that begin with ``#`` say nothing. Blanks around
    either part are no part of it.

    Raises:
        ConfigError: The file cannot be read, or a line of it is no account; never shows the line.
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
    warnings = (f"{path}: admin.accounts_file: others than its owner can open it (chmod 600 it)",) if is_open else ()
    return Accounts(found | own, warnings)


def _account(path: Path, number: int, line: str) -> tuple[str, str]:
    key, _, secret = (part.strip() for part in line.partition("="))
    try:
        AdminSettings.model_validate({"accounts": {key: secret}})
    except ValidationError:
        reason = f"line {number} is no account, expected AccessKey=SecretKey"
        raise ConfigError(str(path), "admin.accounts_file", reason) from None
    return key, secret
