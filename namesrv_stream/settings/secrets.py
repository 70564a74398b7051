"""Which settings are secrets, and how they reach a child: in its environment, never in a file or an argument."""

import json
import re
from typing import Final

from pydantic import SecretStr

from namesrv_stream.settings.sections import Settings

ENVIRONMENT_PREFIX: Final = "NAMESRV_STREAM__"

#: Names of passed-through options that hold one: sasl_plain_password, spark.hadoop.fs.s3a.secret.key, … Rather too
#: many: a misspelt one is a secret all the same.
_SECRET_NAME: Final = re.compile(
    r"pass|pasw|pwd|secret|token|credential|jaas|(account|access|private|api|keystore|encryption|customer)[._-]?key|\bsas\b",
    re.IGNORECASE,
)
#: A user's password in a URL: proxy_url, spark.hadoop.fs.defaultFS, …
_URL_WITH_PASSWORD: Final = re.compile(r"://[^/@\s]*:[^/@\s]*@")
#: A key itself, whatever it is called.
_PRIVATE_KEY: Final = "PRIVATE KEY-----"
_TABLES: Final = (("kafka", "extra"), ("streaming", "extra"), ("data", "extra"))


def is_secret(name: str, value: object) -> bool:
    """Whether an account's or a passed-through option's value must not be shown; settings with names of ours are none.

    Args:
        name: The last part of its key.
        value: Its value.
    """
    if isinstance(value, SecretStr):
        return True
    if isinstance(value, bool):
        return False
    text = str(value)
    return bool(_SECRET_NAME.search(name) or _URL_WITH_PASSWORD.search(text)) or _PRIVATE_KEY in text


def passed_through_secrets(settings: Settings) -> dict[str, str]:
    """Environment variables with the secrets among the options of Kafka, Spark and the tables, for every part."""
    variables = {}
    for section, table in _TABLES:
        for name, value in getattr(getattr(settings, section), table).items():
            if is_secret(name, value):
                # As TOML spells it: a password of digits stays a text.
                variables[_variable(section, table, name)] = json.dumps(value, ensure_ascii=False)
    return variables


def server_secrets(settings: Settings) -> dict[str, str]:
    """Environment variables with the configured accounts and the TLS key's password, for the server only."""
    accounts, password = settings.admin.accounts, settings.tls.key_password.get_secret_value()
    variables = {_variable("admin", "accounts", key): secret.get_secret_value() for key, secret in accounts.items()}
    return variables | ({_variable("tls", "key_password"): password} if password else {})


def _variable(section: str, key: str, name: str = "") -> str:
    return f"{ENVIRONMENT_PREFIX}{section.upper()}__{key.upper()}{name and '__' + name}"
