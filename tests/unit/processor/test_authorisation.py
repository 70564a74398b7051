"""Who may send admin requests."""

from dataclasses import replace

import pytest

from namesrv_stream.errors import NoPermission
from namesrv_stream.processor.authorisation import ADMIN_CODES, BROKER_CODES, MAX_BODY_BYTES, authorise_broker
from namesrv_stream.processor.dispatch import PROCESSORS
from namesrv_stream.processor.name_server import Access, Call, Peer, networks_of
from namesrv_stream.remoting.command import (
    ONEWAY_FLAG,
    AclCredentials,
    RemotingCommand,
    RequestCode,
    ResponseCode,
    signed,
)
from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.route.events import Origin
from tests.support.name_server import Exchange, a_registration_request, a_route_request
from tests.support.server_rig import Rig, turn

ADMIN = (
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.UPDATE_NAMESRV_CONFIG,
)
#: Brokers' requests are among them, because the brokers' networks contain every address by default.
OPEN = sorted(PROCESSORS.keys() - set(ADMIN))
UNTRUSTED = Peer("10.1.2.3", False)
OPERATOR = AclCredentials("operator", "12345678")
FIELDS = {"namespace": "ns", "key": "k", "value": "v", "brokerName": "b", "topic": "t"}


def ask(peer: Peer, request: RemotingCommand, access: Access | None = None) -> RemotingCommand:
    server = Exchange()
    server.peer = peer
    server.server.access = access or Access(accounts={"operator": "12345678"}, enable_config_update=True)
    return server.send(request).response


def a_request(code: RequestCode = RequestCode.PUT_KV_CONFIG) -> RemotingCommand:
    body = b"enableTopicList=true\n" if code == RequestCode.UPDATE_NAMESRV_CONFIG else None
    return RemotingCommand(code, opaque=5, ext_fields=FIELDS, body=body)


@pytest.mark.parametrize("code", ADMIN)
def test_an_untrusted_peer_may_not_send_admin_requests(code: RequestCode) -> None:
    response = ask(UNTRUSTED, a_request(code))

    assert response.code == ResponseCode.NO_PERMISSION
    assert response.remark == (
        f"{code.name} from 10.1.2.3 needs a peer within admin.trusted_networks that comes without a proxy, or a valid"
        " AccessKey and Signature of one of admin.accounts; it is not signed"
    )


@pytest.mark.parametrize("code", OPEN)
def test_an_untrusted_peer_may_send_all_other_requests(code: RequestCode) -> None:
    assert ask(UNTRUSTED, a_request(code)).code != ResponseCode.NO_PERMISSION


def test_an_untrusted_broker_may_register_and_an_untrusted_client_may_query_routes() -> None:
    server = Exchange()
    server.peer = UNTRUSTED

    assert server.send(a_registration_request()).response.code == ResponseCode.SUCCESS
    assert server.send(a_route_request()).response.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", ADMIN)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_an_operator_on_the_same_machine_may_send_admin_requests(code: RequestCode, host: str) -> None:
    assert ask(Peer(host, False), a_request(code)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "peer", [Peer("127.0.0.1", True), Peer("", False), Peer("localhost", False), Peer("::ffff:10.1.2.3", False)]
)
def test_proxied_and_unknown_peers_are_not_trusted(peer: Peer) -> None:
    assert ask(peer, a_request()).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("network", "code"),
    [
        ("10.0.0.0/8", ResponseCode.SUCCESS),
        ("10.1.2.3", ResponseCode.SUCCESS),
        ("0.0.0.0/0", ResponseCode.SUCCESS),
        ("10.2.0.0/16", ResponseCode.NO_PERMISSION),
        ("::/0", ResponseCode.NO_PERMISSION),
    ],
)
def test_configured_networks_are_trusted(network: str, code: ResponseCode) -> None:
    assert ask(UNTRUSTED, a_request(), Access(trusted_networks=networks_of(["fd00::/8", network]))).code == code


def test_no_peer_is_trusted_without_a_trusted_network() -> None:
    assert ask(Peer("127.0.0.1", False), a_request(), Access(trusted_networks=())).code == ResponseCode.NO_PERMISSION


def test_an_error_names_an_invalid_network() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0/8"):
        networks_of(("10.0.0/8",))


# ---- signatures ----


@pytest.mark.parametrize("peer", [UNTRUSTED, Peer("127.0.0.1", True)])
@pytest.mark.parametrize("code", ADMIN)
def test_an_untrusted_peer_may_send_admin_requests_with_a_valid_signature(code: RequestCode, peer: Peer) -> None:
    assert ask(peer, signed(a_request(code), OPERATOR)).code == ResponseCode.SUCCESS


def test_the_signature_of_javas_client_is_accepted() -> None:
    # Made by AclClientRPCHook of rocketmq-client 5.3.3, as in tests/unit/remoting/test_acl.py.
    fields = {"namespace": "ns", "key": "k", "value": "v=1;ü\U0001f600", "AccessKey": "operator"}
    access = Access(accounts={"operator": "12345678é"})
    plain = RemotingCommand(
        RequestCode.PUT_KV_CONFIG, ext_fields=fields | {"Signature": "Sldr1+tuF85LKgk6rLEXaGF4FsQ="}
    )
    token = {"SecurityToken": "tok", "Signature": "yHnQ7rAprHeR4/2BX9icYumXy2w="}

    assert ask(UNTRUSTED, plain, access).code == ResponseCode.SUCCESS
    assert ask(UNTRUSTED, replace(plain, ext_fields=fields | token), access).code == ResponseCode.SUCCESS


def test_zone_fields_that_a_java_client_adds_after_signing_do_not_invalidate_the_signature() -> None:
    # As mqadmin 5.3.3 sent it with -Drocketmq.zone=z1 -Drocketmq.zone.mode=true and this account in its tools.yml.
    fields = {"namespace": "ns", "key": "k", "value": "v 1", "__ZONE_MODE": "true", "__ZONE_NAME": "z1"}
    signature = {"AccessKey": "operator", "Signature": "6BjeAvFXpAjoAeJBa41Ycmbmzzc="}

    response = ask(UNTRUSTED, RemotingCommand(RequestCode.PUT_KV_CONFIG, ext_fields=fields | signature))

    assert response.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "request_",
    [
        signed(a_request(), AclCredentials("operator", "other")),
        signed(a_request(), AclCredentials("nobody", "12345678")),
        signed(a_request(), AclCredentials("", "12345678")),
        replace(a_request(), ext_fields={**FIELDS, "AccessKey": "operator"}),
        replace(a_request(), ext_fields={**FIELDS, "AccessKey": "operator", "Signature": ""}),
        replace(a_request(), ext_fields={**FIELDS, "AccessKey": "operator", "Signature": "ü\ud83d"}),
        replace(signed(a_request(), OPERATOR), body=b"x"),
        replace(a_request(), ext_fields={**(signed(a_request(), OPERATOR).ext_fields or {}), "value": "w"}),
        replace(a_request(), ext_fields=None),
    ],
    ids=["secret", "account", "no account", "unsigned", "empty", "no Base64", "body", "field", "no fields"],
)
def test_an_invalid_signature_is_refused_and_the_remark_contains_no_secret(request_: RemotingCommand) -> None:
    response = ask(UNTRUSTED, request_)

    assert response.code == ResponseCode.NO_PERMISSION
    assert "12345678" not in (response.remark or "")


@pytest.mark.parametrize(
    ("fields", "remark", "logged"),
    [
        (FIELDS, "it is not signed", "it is not signed"),
        (
            {**FIELDS, "AccessKey": "nobody", "Signature": "x"},
            "its signature is not valid",
            "unknown account 'nobody'",
        ),
        (
            {**FIELDS, "AccessKey": "operator", "Signature": "x"},
            "its signature is not valid",
            "the signature is wrong for account 'operator'",
        ),
    ],
)
def test_the_log_names_the_account_of_an_invalid_signature_and_the_answer_does_not(
    fields: dict[str, str], remark: str, logged: str
) -> None:
    server = Exchange()
    server.peer = UNTRUSTED
    server.server.access = Access(accounts={"operator": "12345678"})
    answer = server.send(replace(a_request(), ext_fields=fields))

    assert (answer.response.remark or "").endswith(f"; {remark}")
    assert answer.refusal.endswith(f": {logged}")


def test_an_account_with_an_empty_secret_is_refused() -> None:
    request = signed(a_request(), AclCredentials("operator", ""))

    assert ask(UNTRUSTED, request, Access(accounts={"operator": ""})).code == ResponseCode.NO_PERMISSION


def test_access_does_not_show_its_secrets() -> None:
    assert "12345678" not in repr(Access(accounts={"operator": "12345678"}))


@pytest.mark.parametrize("peer", [UNTRUSTED, Peer("127.0.0.1", False)])
def test_a_body_above_the_limit_for_admin_requests_is_refused(peer: Peer) -> None:
    body = b"#" * (MAX_BODY_BYTES + 1)
    response = ask(peer, signed(RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, body=body), OPERATOR))

    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "a body of 8193 bytes exceeds 8192"


def test_a_signature_in_fields_with_lower_case_names_is_refused() -> None:
    fields = {name.lower(): text for name, text in (signed(a_request(), OPERATOR).ext_fields or {}).items()}

    assert ask(UNTRUSTED, replace(a_request(), ext_fields=fields)).code == ResponseCode.NO_PERMISSION


def test_a_oneway_admin_request_of_an_untrusted_peer_changes_nothing() -> None:
    server = Exchange()
    server.peer = UNTRUSTED
    request = replace(a_request(), flag=ONEWAY_FLAG)

    assert server.send(request).accepted == ()


def test_a_signature_does_not_cover_the_request_code() -> None:
    query = signed(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "TopicTest"}), OPERATOR)

    # A known limitation of ACL 1.0, therefore accounts are for operators only (ADR 0011).
    assert ask(UNTRUSTED, replace(query, code=RequestCode.DELETE_TOPIC_IN_NAMESRV)).code == ResponseCode.SUCCESS


# ---- brokers ----


@pytest.mark.parametrize("code", sorted(BROKER_CODES))
def test_a_peer_outside_the_broker_networks_may_not_send_requests_of_brokers(code: RequestCode) -> None:
    access = Access(broker_networks=networks_of(["10.1.0.0/16"]))
    for host, may in (("10.1.2.3", True), ("10.2.0.1", False), ("", False), ("127.0.0.1", False)):
        call = Call(RemotingCommand(code), Origin("s1", 1), 0, Peer(host, False))
        if may:
            authorise_broker(access, call)
        else:
            with pytest.raises(NoPermission, match=r"admin\.broker_networks"):
                authorise_broker(access, call)


@pytest.mark.parametrize("code", sorted(BROKER_CODES))
@pytest.mark.parametrize("size", [1_000, 100_000])
async def test_requests_of_brokers_over_a_connection_from_outside_their_networks_are_refused(
    code: RequestCode, size: int
) -> None:
    rig = Rig(access=Access(broker_networks=networks_of(["10.1.0.0/16"])))

    peer = rig.connect("10.2.0.1")

    peer.deliver(encode_frame(replace(a_registration_request(body=bytes(size)), code=code)))
    await turn()

    assert peer.answers()[0].code == ResponseCode.NO_PERMISSION


def test_a_broker_outside_the_broker_networks_is_accepted_with_a_valid_signature() -> None:
    access = Access(broker_networks=(), accounts={"brokers": "s3cret"})
    request_ = RemotingCommand(RequestCode.BROKER_HEARTBEAT, ext_fields={"brokerName": "b"}, body=b"x")
    by_account = signed(request_, AclCredentials("brokers", "s3cret"))
    by_guess = signed(request_, AclCredentials("brokers", "guess"))
    authorise_broker(access, Call(by_account, Origin("s1", 1), 0, Peer("192.0.2.1", False)))
    with pytest.raises(NoPermission):
        authorise_broker(access, Call(by_guess, Origin("s1", 1), 0, Peer("192.0.2.1", False)))


def test_every_request_without_authorisation_is_read_only() -> None:
    assert ADMIN_CODES.isdisjoint(BROKER_CODES)
    unauthorised = {code.name for code in set(PROCESSORS) - ADMIN_CODES - BROKER_CODES}
    changing = {name for name in unauthorised if not name.startswith("GET_")}
    assert changing == set(), "add the code to ADMIN_CODES or BROKER_CODES"
