"""Checks whether a peer may send admin requests and brokers' requests.

RocketMQ's NameServer allows every peer. Here a request of ``ADMIN_CODES`` must come from a trusted network, or have the
signature of RocketMQ's own tools (``remoting.command``). Networks prove nothing about a peer behind a proxy.

A signature covers the values of the ext fields and the body. It does not cover their names, the request code or
the time. So a peer that sees any signed request can send an admin request with the same values (ADR 0011).
"""

import hmac
from ipaddress import ip_address
from typing import Final

from namesrv_stream.addresses import plain_host
from namesrv_stream.errors import NoPermission, RequestRefused
from namesrv_stream.processor.name_server import Access, Call, NameServer, Networks
from namesrv_stream.remoting.command import ACCESS_KEY, SIGNATURE, RemotingCommand, RequestCode, sign
from namesrv_stream.route.why.facts import Refusal

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

#: Requests of brokers that change routes and liveness; mqadmin sends 217, too.
BROKER_CODES = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.BROKER_HEARTBEAT,
    }
)

#: Limit for the body of an admin request. Only 318 has a body; all of RocketMQ's keys with their values take 2 KiB.
MAX_BODY_BYTES: Final = 8 * 1024

#: Limits of ``NameServer.refusals``, because peers choose the names.
_MAX_NAME_CHARS: Final = 255
_MAX_TEXT_CHARS: Final = 400
_MAX_REFUSALS: Final = 200

# Source: rocketmq 5.3.3, DynamicalExtFieldRPCHook, which MQClientAPIImpl registers after the signing hook.
_ZONE_FIELDS = frozenset({"__ZONE_NAME", "__ZONE_MODE"})


def authorise(access: Access, call: Call) -> None:
    """Check an admin request.

    Raises:
        RequestRefused: The body is larger than ``MAX_BODY_BYTES``; it is neither hashed nor parsed.
        NoPermission: The request comes from outside ``trusted_networks`` or through a proxy, and no account signed it.
    """
    size = len(call.request.body or b"")
    if size > MAX_BODY_BYTES:
        raise RequestRefused(f"a body of {size} bytes exceeds {MAX_BODY_BYTES}")
    is_trusted = not call.peer.is_proxied and is_within(call.peer.host, access.trusted_networks)
    if is_trusted or _is_signed(access, call.request):
        return
    name = RequestCode(call.request.code).name
    origin = f"{call.peer.host or 'an unknown address'}{' through a proxy' if call.peer.is_proxied else ''}"
    raise _refusal(access, call, f"{name} from {origin}", "admin.trusted_networks that comes without a proxy")


def authorise_broker(access: Access, call: Call) -> None:
    """Check a broker's request.

    A 5.x broker signs its requests if its ``innerClientAuthenticationCredentials`` are set.

    Raises:
        NoPermission: The request comes from outside ``broker_networks``, and no account signed it.
    """
    if is_within(call.peer.host, access.broker_networks) or _is_signed(access, call.request):
        return
    name = RequestCode(call.request.code).name
    raise _refusal(access, call, f"{name} from {call.peer.host or 'an unknown address'}", "admin.broker_networks")


def remember_refusal(server: NameServer, call: Call, text: str) -> None:
    """Remember a broker's refused request under the broker or topic that it names, for the command ``why``.

    Args:
        server: Its ``refusals`` are changed.
        call: The request.
        text: Why it was refused.
    """
    fields, refusals = call.request.ext_fields or {}, server.refusals
    name = (fields.get("brokerName") or fields.get("topic") or "")[:_MAX_NAME_CHARS]
    earlier = refusals.pop(name, None)
    refusals[name] = Refusal(text[:_MAX_TEXT_CHARS], earlier.since_ms if earlier else call.now_ms, call.now_ms)
    if len(refusals) > _MAX_REFUSALS:
        del refusals[next(iter(refusals))]


def who(access: Access, call: Call) -> str:
    """Return a readable name of the sender of a permitted request: the account that signed it, and the address."""
    host = f"{call.peer.host or 'an unknown address'}{' through a proxy' if call.peer.is_proxied else ''}"
    account = (call.request.ext_fields or {}).get(ACCESS_KEY, "")
    return f"{account!r} from {host}" if _is_signed(access, call.request) else host


def _refusal(access: Access, call: Call, what: str, networks: str) -> NoPermission:
    """Return the error for the peer. Only the log says whether the account exists; the peer must not learn it."""
    ext_fields = call.request.ext_fields or {}
    account = ext_fields.get(ACCESS_KEY, "")
    if not account or not ext_fields.get(SIGNATURE):
        reason = logged = "it is not signed"
    else:
        reason = "its signature is not valid"
        known = bool(access.accounts.get(account))
        logged = f"{'the signature is wrong for account' if known else 'unknown account'} {account!r}"
    refused = f"{what} needs a peer within {networks}, or a valid AccessKey and Signature of one of admin.accounts"
    return NoPermission(f"{refused}; {reason}", for_log=f"{what}: {logged}")


def is_within(host: str, networks: Networks) -> bool:
    """Return whether an address is in one of the networks; False if it is not an address."""
    try:
        address = ip_address(plain_host(host))
    except ValueError:
        return False
    return any(address in network for network in networks)


def _is_signed(access: Access, request: RemotingCommand) -> bool:
    ext_fields = request.ext_fields or {}
    signature = ext_fields.get(SIGNATURE)
    secret = access.accounts.get(ext_fields.get(ACCESS_KEY, ""))
    if not signature or not secret:
        return False
    # A Java client in a zone adds these two fields after signing. They have no effect on an admin request.
    unzoned = {name: value for name, value in ext_fields.items() if name not in _ZONE_FIELDS}
    given = signature.encode(errors="replace")
    return any(hmac.compare_digest(sign(f, request.body, secret).encode(), given) for f in (ext_fields, unzoned))
