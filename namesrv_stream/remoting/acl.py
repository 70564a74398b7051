"""Signed requests: RocketMQ's ACL 1.0, an HMAC-SHA1 over the custom header's values and the body.

Source: rocketmq 5.3.3, AclClientRPCHook, AclUtils.combineRequestContent, AclSigner.
"""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from namesrv_stream.remoting.command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"


@dataclass(frozen=True, slots=True)
class AclCredentials:
    """An account.

    Attributes:
        access_key: Name of the account, sent with every request.
        secret_key: The secret that both sides know; never sent.
        security_token: Sent and signed as well, if a token service requires it.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


def sign(ext_fields: Mapping[str, str], body: bytes | None, secret: str) -> str:
    """Return the signature that a request must carry.

    Args:
        ext_fields: All ext fields including AccessKey (and SecurityToken). A Signature among them is ignored.
        body: The request's body as sent.
        secret: The account's secret.

    Returns:
        Base64 of the 20 bytes.
    """
    values = (ext_fields[name] for name in sorted(ext_fields, key=_java_order) if name != SIGNATURE)
    # Like Java, this replaces a lone surrogate by a question mark.
    content = "".join(values).encode(errors="replace") + (body or b"")
    return base64.b64encode(hmac.digest(secret.encode(errors="replace"), content, "sha1")).decode()


def signed(request: RemotingCommand, credentials: AclCredentials) -> RemotingCommand:
    """Return ``request`` with the ext fields of a signature."""
    ext_fields = {**(request.ext_fields or {}), ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        ext_fields[SECURITY_TOKEN] = credentials.security_token
    ext_fields[SIGNATURE] = sign(ext_fields, request.body, credentials.secret_key)
    return replace(request, ext_fields=ext_fields)


def _java_order(name: str) -> bytes:
    """Java sorts strings by UTF-16 units. Above U+FFFF, this order differs from the order of code points."""
    return name.encode("utf-16-be", "surrogatepass")
