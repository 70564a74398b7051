"""Processors of brokers' requests: registration, unregistration, DataVersion, members of a group, heartbeat.

Source: rocketmq 5.3.3, DefaultRequestProcessor and RouteInfoManager.
"""

import re
from dataclasses import replace
from typing import Final, NamedTuple

from xxhash import xxh3_128
from zlib_ng import zlib_ng

from namesrv_stream.errors import BodyDecodeError, RequestRefused
from namesrv_stream.processor.body_fields import require_short
from namesrv_stream.processor.name_server import Accepted, Answer, Call, Dependency, LoggedRegistration, NameServer
from namesrv_stream.processor.register_body import (
    RegisterBrokerBody,
    RegistrationBody,
    decode_data_version,
    decode_inline,
)
from namesrv_stream.processor.route_body import encode_data_version, encode_kv_table, encode_member_group
from namesrv_stream.remoting.command import RemotingCommand, ResponseCode, response_to
from namesrv_stream.remoting.headers import (
    ORDER_TOPIC_CONFIG,
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from namesrv_stream.route.address_views import addrs_for_clients
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered, BrokerUnregistered, Origin, Proof, murmur2
from namesrv_stream.route.group import BrokerGroup, master_of
from namesrv_stream.route.interpretation import refusal_of_end
from namesrv_stream.route.liveness_settings import settings_of_registrations
from namesrv_stream.route.model import LeaseKey, LiveKey, Registration
from namesrv_stream.route.registration import register

#: 5.x brokers change this stamp whenever they send, so bodies with the same content differ only in it. The pattern is
#: exactly what fastjson writes. A topic with this name has other properties, so it does not match.
_STAMP: Final = re.compile(rb'"mappingDataVersion":\{("counter":[0-9]++,"stateVersion":[0-9]++,"timestamp":[0-9]++)\}')
#: The part of a body that is searched: brokers write the stamp before the topics. A stamp outside it is hashed like the
#: rest, and then no registration of that broker counts as unchanged.
_HEAD_BYTES: Final = 4 * 1024
#: For so long in every interval, registrations are logged in full. RocketMQ's brokers register at least once a minute.
#: Source: rocketmq 5.3.3, BrokerController.start.
_FULL_FOR_MS: Final = 60_000
_NO_ROOM: Final = "too many changed registrations wait for the job; try again later"


def registration_hash(header: RegisterBrokerRequestHeader, body: bytes) -> str:
    """Return 32 hexadecimal digits, equal for the same content; checksum, connection and time are ignored.

    The hash identifies an unchanged registration, which the server need not decode. It is not cryptographic: such a
    hash would take a third of the time of an unchanged registration. A registration is compared only with the previous
    one of the same broker. A peer that could forge a hash could send a false registration as well.
    """
    content = (
        header.broker_name,
        header.broker_addr,
        header.cluster_name,
        header.ha_server_addr,
        header.broker_id,
        header.heartbeat_timeout_millis,
        header.enable_acting_master,
        header.zone_name,
        header.compressed,
    )
    digest = xxh3_128(repr(content).encode("utf-8", "backslashreplace"))
    head = body[:_HEAD_BYTES]
    begin = 0
    with memoryview(body) as view:
        # After a single quote, which fastjson reads but never writes, a match may be part of a text.
        for stamp in _STAMP.finditer(head) if b"'" not in head else ():
            digest.update(view[begin : stamp.start(1)])
            begin = stamp.end(1)
        digest.update(view[begin:])
    return digest.hexdigest()


class _Registering(NamedTuple):
    """A registration before its body is decoded; ``logged`` is the same one if the log contains it."""

    header: RegisterBrokerRequestHeader
    key: LeaseKey
    broker_id: int
    body: RegistrationBody
    digest: str
    logged: LoggedRegistration | None


def register_broker(server: NameServer, call: Call) -> Answer:
    """Answer 103. Instead of a registration that the log contains, a heartbeat with its hash is logged.

    The log contains it if this server has logged the same one in full over a connection that was open until this one
    came, has heard the broker without a pause since, and the view still has its hash (ADR 0062). It is not decoded if
    it is pending in the view, or if it came over the same connection and would change nothing; it then never waits for
    room in the log.

    If decoding takes long, the answer contains the body, and the caller calls again with the decoded one.

    Raises:
        RequestRefused: The checksum is wrong, a field is missing, the version is negative, the registration has
            one topic and no full registration came before, or its broker name has too many processes.
        BodyDecodeError: The body cannot be read.
    """
    registering = _begin_registration(server, call)
    header, key, logged = registering.header, registering.key, registering.logged
    group, settings = server.table.group(key.broker_name), settings_of_registrations(server.table.settings)
    known = (call.origin.holder, settings)
    # Identity instead of equality: the cost of a comparison grows with the number of topics.
    if logged is not None and logged.group is group and (logged.holder, logged.settings) == known:
        response = _registered_response(server, call.request, header, group)
        return Answer(response, (Accepted(_heartbeat_of(call, registering), None),))
    waiting = server.view.pending_registration(key)
    if waiting is not None and waiting.registration_hash != registering.digest:
        waiting = None
    if waiting is not None and logged is not None and _is_shown(group, registering):
        return _register(server, call, registering, waiting, waiting)
    if call.must_wait:
        return Answer(response_to(call.request), is_postponed=True, alive=key)
    decoded = decode_inline(registering.body) if call.decoded is None else call.decoded
    if decoded is None:
        return Answer(response_to(call.request), undecoded=registering.body, alive=key)
    if isinstance(decoded, str):
        raise BodyDecodeError(call.request.code, decoded)
    return _register(server, call, registering, _registration(registering, decoded), waiting)


def unregister_broker(server: NameServer, call: Call) -> Answer:
    """Answer 104, with SUCCESS for every well-formed request, even if the broker is unknown.

    One that counts never waits for room in the log: there is one for each registration.

    Raises:
        RequestRefused: A field is missing.
    """
    header = UnRegisterBrokerRequestHeader.from_ext_fields(call.request.ext_fields)
    key = broker_of(header.broker_name, header.cluster_name, header.broker_addr)
    broker_id = -1 if header.broker_id is None else header.broker_id
    event = BrokerUnregistered(call.origin, key.broker_name, key.live_key, broker_id)
    if refusal_of_end(server.table.group(key.broker_name), event) is None:
        return Answer(response_to(call.request), (Accepted(event, event),))
    if call.must_wait:
        return Answer(response_to(call.request), is_postponed=True)
    return Answer(response_to(call.request), (Accepted(event, None),))


def query_data_version(server: NameServer, call: Call) -> Answer:
    """Answer 322: whether the broker should register. The request is a heartbeat, too; brokers send it oneway for that.

    The answer is "changed" if the DataVersion is another one. It is also "changed" unless the broker has registered
    with this server since the server's start, over a connection that is still open. A registration with another name
    server does not count.

    Raises:
        RequestRefused: A field is missing.
        BodyDecodeError: The body is not a DataVersion.
    """
    header = QueryDataVersionRequestHeader.from_ext_fields(call.request.ext_fields)
    key = broker_of(header.broker_name, header.cluster_name, header.broker_addr)
    asked = decode_data_version(call.request.body)
    live = server.table.group(key.broker_name).live_brokers.get(key.live_key)
    is_held = live is not None and key in server.logged and call.origin.server_id in live.holders
    changed = live is None or not is_held or live.data_version != asked
    fields = QueryDataVersionResponseHeader(changed=changed).to_ext_fields()
    body = encode_data_version(live.data_version) if live is not None else None
    return _heartbeat_answer(server, call.origin, key, response_to(call.request, ext_fields=fields, body=body))


def broker_heartbeat(server: NameServer, call: Call) -> Answer:
    """Answer 904 with SUCCESS. The heartbeat has an effect only if this server is a holder of the broker.

    Raises:
        RequestRefused: A field is missing.
    """
    header = BrokerHeartbeatRequestHeader.from_ext_fields(call.request.ext_fields)
    key = broker_of(header.broker_name, header.cluster_name, header.broker_addr)
    return _heartbeat_answer(server, call.origin, key, response_to(call.request))


def get_broker_member_group(server: NameServer, call: Call) -> Answer:
    """Answer 901 with the addresses of a broker name; the cluster is copied from the request, not checked.

    Brokers read their own group, so a connection that registered a broker has no address view.
    """
    header = GetBrokerMemberGroupRequestHeader.from_ext_fields(call.request.ext_fields)
    group = server.table.group(header.broker_name or "")
    addrs = addrs_for_clients(call.view, group.broker_name, group.broker_addrs)
    body = encode_member_group(header.cluster_name, header.broker_name, addrs)
    # The remark is a mistake of the Java server. Peers compare codes only; tests compare whole answers of both servers.
    return Answer(response_to(call.request, remark="not set any response code", body=body))


def broker_of(broker_name: str | None, cluster: str | None, broker_addr: str | None) -> LeaseKey:
    """Return the broker process that a request names.

    Raises:
        RequestRefused: A field is missing.
    """
    # Differs from RocketMQ, which accepts such requests and stores entries that no client can use (ADR 0005).
    for name, value in (("brokerName", broker_name), ("clusterName", cluster), ("brokerAddr", broker_addr)):
        if not value:
            raise RequestRefused(f"{name} is missing")
        require_short(name, value)
    return LeaseKey(broker_name or "", LiveKey(cluster or "", broker_addr or ""))


def _begin_registration(server: NameServer, call: Call) -> _Registering:
    header = RegisterBrokerRequestHeader.from_ext_fields(call.request.ext_fields)
    body = _body_of(call, header)
    if header.body_crc32 and zlib_ng.crc32(body.body) & 0x7FFFFFFF != header.body_crc32:
        raise RequestRefused("crc32 not match")
    key = broker_of(header.broker_name, header.cluster_name, header.broker_addr)
    if header.broker_id is None:
        raise RequestRefused("brokerId is missing or not a number")
    if call.request.version < 0:
        raise RequestRefused("version is negative")
    digest = registration_hash(header, body.body)
    logged = server.logged.get(key)
    is_in_log = (
        logged is not None
        and logged.registration_hash == digest
        and not _is_due(server, key, call.now_ms)
        and server.is_unbroken(key, logged.at_ms)
    )
    return _Registering(header, key, header.broker_id, body, digest, logged if is_in_log else None)


def _body_of(call: Call, header: RegisterBrokerRequestHeader) -> RegistrationBody:
    return RegistrationBody(call.request.body or b"", header.compressed, call.request.version)


def _register(
    server: NameServer, call: Call, registering: _Registering, registration: Registration, waiting: Registration | None
) -> Answer:
    """Answer a registration whose content is known; ``waiting`` is the same one if it is pending in the view.

    The view keeps what it applies until the job has folded it, and a broker may register often meanwhile. So equal
    registrations share their content.
    """
    key, logged = registering.key, registering.logged
    group, settings = server.table.group(key.broker_name), settings_of_registrations(server.table.settings)
    outcome = register(group, registration, call.origin.server_id, call.origin.holder, settings)
    if outcome.refused is not None:
        raise RequestRefused(outcome.refused)
    response = _registered_response(server, call.request, registering.header, outcome.group)
    heartbeat = _heartbeat_of(call, registering)
    if logged is not None and outcome.group is group:
        server.logged[key] = logged._replace(group=group, settings=settings)
        return Answer(response, (Accepted(heartbeat, None),))
    pending = BrokerRegistered(call.origin, waiting or replace(registration, topics_json=b""))
    if not server.view.has_room_for(pending):
        # The broker stays in the routes as it is, and a later registration may find room.
        alive = replace(heartbeat, proof=Proof.HEARTBEAT, registration_hash="")
        return Answer(response_to(call.request, ResponseCode.SYSTEM_ERROR, _NO_ROOM), (Accepted(alive, None),))
    if logged is not None and _is_shown(group, registering):
        server.logged[key] = logged._replace(holder=call.origin.holder, group=None)
        return Answer(response, (Accepted(heartbeat, pending),))
    # The fold does not retain a registration of one topic.
    known_hash = registering.digest if len(registration.topics) != 1 else ""
    server.logged[key] = LoggedRegistration(known_hash, call.origin.holder, call.now_ms)
    return Answer(response, (Accepted(BrokerRegistered(call.origin, registration), pending),))


def _is_shown(group: BrokerGroup, registering: _Registering) -> bool:
    """Return whether the view has this registration; a stale one is in the log only."""
    live = group.live_brokers.get(registering.key.live_key)
    return live is not None and live.registration_hash == registering.digest


def _heartbeat_of(call: Call, registering: _Registering) -> BrokerHeartbeat:
    """Return the event that stands for a registration which the log contains."""
    key = registering.key
    return BrokerHeartbeat(call.origin, key.broker_name, key.live_key, Proof.REGISTRATION, registering.digest)


def _registration(registering: _Registering, body: RegisterBrokerBody) -> Registration:
    header, key = registering.header, registering.key
    return Registration(
        cluster=key.live_key.cluster,
        broker_name=key.broker_name,
        broker_addr=key.live_key.broker_addr,
        broker_id=registering.broker_id,
        ha_server_addr=header.ha_server_addr or "",
        data_version=body.data_version,
        topics=body.topics,
        timeout_ms=header.heartbeat_timeout_millis,
        enable_acting_master=header.enable_acting_master,
        zone_name=header.zone_name,
        topic_mappings=body.topic_mappings or None,
        filter_servers=body.filter_servers,
        registration_hash=registering.digest,
        topics_json=body.topics_json,
        event_bytes=body.event_bytes,
    )


def _heartbeat_answer(server: NameServer, origin: Origin, key: LeaseKey, response: RemotingCommand) -> Answer:
    """Return the answer to a heartbeat, which changes nothing; a heartbeat of an unknown broker is not logged."""
    live = server.table.group(key.broker_name).live_brokers.get(key.live_key)
    accepted: tuple[Accepted, ...] = ()
    if live is not None and origin.server_id in live.holders:
        accepted = (Accepted(BrokerHeartbeat(origin, key.broker_name, key.live_key, Proof.HEARTBEAT), None),)
    return Answer(response, accepted, depends_on=Dependency("broker", key.broker_name))


def _registered_response(
    server: NameServer, request: RemotingCommand, header: RegisterBrokerRequestHeader, group: BrokerGroup
) -> RemotingCommand:
    """Return the response to a registration, given the broker group after it."""
    # If another address keeps the brokerId, the registration is stale. The answer is an empty SUCCESS, as in Java.
    is_member = header.broker_id is not None and group.broker_addrs.get(header.broker_id) == header.broker_addr
    master = master_of(group, header.cluster_name or "") if header.broker_id and is_member else None
    fields = RegisterBrokerResponseHeader(
        ha_server_addr=master[1] or None if master else None, master_addr=master[0] if master else None
    )
    body = None
    if server.options.return_order_topic_config_to_broker and ORDER_TOPIC_CONFIG in server.table.kv:
        body = encode_kv_table(server.table.kv[ORDER_TOPIC_CONFIG])
    return response_to(request, ext_fields=fields.to_ext_fields(), body=body)


def _is_due(server: NameServer, key: LeaseKey, now_ms: int) -> bool:
    """Return whether this registration must be logged in full although it changes nothing; names share no moment."""
    interval_ms = server.options.full_registration_interval_ms
    return (now_ms + murmur2(key.broker_name.encode())) % interval_ms < _FULL_FOR_MS
