"""Who may change what an operator changes.

RocketMQ's NameServer lets everybody; here a request of ``ADMIN_CODES`` must come from a trusted network, or be signed
as RocketMQ's own tools sign theirs (``remoting.acl``). Networks say nothing about a peer behind a proxy.

A signature covers the values of the ext fields and the body: neither their names, nor the request code, nor the moment.
Who gets to see a signed request, be it a question, can send an admin request that says the same (ADR 0011).
"""

import hmac
from ipaddress import IPv6Address, ip_address
from typing import Final

from namesrv_stream.errors import NoPermission, RequestRefused
from namesrv_stream.processor.name_server import Access, Call, Networks
from namesrv_stream.remoting.acl import ACCESS_KEY, SIGNATURE, sign
from namesrv_stream.remoting.codes import RequestCode
from namesrv_stream.remoting.command import RemotingCommand

ADMIN_CODES = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
    }
)

#: What changes routes and liveness, and comes from brokers (217 from mqadmin, too).
BROKER_CODES = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.BROKER_HEARTBEAT,
    }
)

#: Of an admin request. Only 318 has one, and all of RocketMQ's keys with their values take 2 KiB.
MAX_BODY_BYTES: Final = 64 * 1024

# Source: rocketmq 5.3.3, DynamicalExtFieldRPCHook, which MQClientAPIImpl registers after the hook that signs.
_ZONE_FIELDS = frozenset({"__ZONE_NAME", "__ZONE_MODE"})


def authorise(access: Access, call: Call) -> None:
    """Let an admin request pass.

    Raises:
        RequestRefused: Its body is larger than any that a tool sends, so that nobody has it hashed or parsed.
        NoPermission: It comes from elsewhere and is not signed by one of the accounts.
    """
    size = len(call.request.body or b"")
    if size > MAX_BODY_BYTES:
        raise RequestRefused(f"a body of {size} bytes exceeds {MAX_BODY_BYTES}")
    is_trusted = not call.peer.is_proxied and _is_within(call.peer.host, access.trusted_networks)
    if is_trusted or _is_signed(access, call.request):
        return
    name = RequestCode(call.request.code).name
    origin = f"{call.peer.host or 'an unknown address'}{' through a proxy' if call.peer.is_proxied else ''}"
    raise _refusal(access, call, f"{name} from {origin}", "admin.trusted_networks that comes without a proxy")


def authorise_broker(access: Access, call: Call) -> None:
    """Let what a broker says pass.

    A broker of 5.x signs it where its ``innerClientAuthenticationCredentials`` are set.

    Raises:
        NoPermission: It comes from outside ``broker_networks``, and is not signed by one of the accounts.
    """
    if _is_within(call.peer.host, access.broker_networks) or _is_signed(access, call.request):
        return
    name = RequestCode(call.request.code).name
    raise _refusal(access, call, f"{name} from {call.peer.host or 'an unknown address'}", "admin.broker_networks")


def _refusal(access: Access, call: Call, what: str, networks: str) -> NoPermission:
    """The error for the peer. Which accounts exist is not for a stranger to know, so only the log tells that."""
    ext_fields = call.request.ext_fields or {}
    account = ext_fields.get(ACCESS_KEY, "")
    if not account or not ext_fields.get(SIGNATURE):
        said, logged = "it is not signed", "it is not signed"
    else:
        said = "its signature is not valid"
        known = bool(access.accounts.get(account))
        logged = f"{'the signature is wrong for account' if known else 'unknown account'} {account!r}"
    refused = f"{what} needs a peer within {networks}, or a valid AccessKey and Signature of one of admin.accounts"
    return NoPermission(f"{refused}; {said}", for_log=f"{what}: {logged}")


def _is_within(host: str, networks: Networks) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        # A socket that listens on both families shows IPv4 peers as ``::ffff:a.b.c.d``.
        address = address.ipv4_mapped or address
    return any(address in network for network in networks)


def _is_signed(access: Access, request: RemotingCommand) -> bool:
    ext_fields = request.ext_fields or {}
    signature = ext_fields.get(SIGNATURE)
    secret = access.accounts.get(ext_fields.get(ACCESS_KEY, ""))
    if not signature or not secret:
        return False
    # A Java client in a zone adds these two behind its signature. They mean nothing to an admin request.
    unzoned = {name: value for name, value in ext_fields.items() if name not in _ZONE_FIELDS}
    given = signature.encode(errors="replace")
    return any(hmac.compare_digest(sign(f, request.body, secret).encode(), given) for f in (ext_fields, unzoned))
