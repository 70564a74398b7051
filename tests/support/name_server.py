"""A name server without sockets: processors with a view, to which events are applied as by the gateway."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from namesrv_stream.errors import BodyDecodeError
from namesrv_stream.processor.dispatch import process
from namesrv_stream.processor.name_server import Accepted, Answer, Call, DecodedBody, NameServer, Options, Peer
from namesrv_stream.processor.register_body import RegistrationBody, decode_register_body
from namesrv_stream.processor.route_body import RouteAnswers
from namesrv_stream.remoting.command import RemotingCommand, RequestCode
from namesrv_stream.route.events import (
    AcceptedEvent,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Origin,
    Proof,
)
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.route.view.route_view import RouteView

#: Ordinal of 5.3.3. Source: rocketmq 5.3.3, MQVersion.Version.
V5_3_3 = 479
MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"


class Exchange:
    """One server and its view; each ``send`` answers a request and applies its accepted events.

    Attributes:
        now_ms: The server's monotonic time.
        logged: Events written to the log.
        peer: Address of the sender, an operator on the same machine.
    """

    def __init__(self, options: Options | None = None, *, server_id: str = "s1", server_epoch: int = 1) -> None:
        options = options or Options()
        view = RouteView()
        answers = RouteAnswers(view, support_acting_master=options.support_acting_master)
        self.server = NameServer(view, answers, options)
        self.now_ms = 0
        self.logged: list[AcceptedEvent] = []
        self.peer = Peer("127.0.0.1", False)
        self._origin = Origin(server_id, server_epoch)
        self._registered: dict[int, dict[LeaseKey, None]] = {}

    @property
    def view(self) -> RouteView:
        return self.server.view

    def send(self, request: RemotingCommand, connection: int = 1) -> Answer:
        """Answer a request of ``connection``, and apply its accepted events."""
        origin = self._origin._replace(connection_id=connection)
        call = Call(request, origin, self.now_ms, self.peer)
        answer = process(self.server, call)
        if answer.undecoded is not None:
            answer = process(self.server, call._replace(decoded=_decoded(answer.undecoded)))
        if answer.long is not None:
            body = b"".join(answer.long.pieces())
            answer = answer._replace(response=replace(answer.response, body=body))
        self.apply(answer.accepted, connection)
        if answer.options:
            self.server.reconfigure(answer.options)
        return answer

    def apply(self, accepted: tuple[Accepted, ...], connection: int) -> None:
        for logged, applied in accepted:
            self.logged.append(logged)
            if applied is not None:
                self.accept(applied)
            key = _registered_key(logged)
            if key is not None:
                self._registered.setdefault(connection, {})[key] = None

    def accept(self, event: AcceptedEvent) -> None:
        """Apply an event to the view."""
        self.view.accept(event)

    def close(self, connection: int) -> None:
        """Close a connection, and commit the result of the fold: its brokers are removed."""
        for key in self._registered.pop(connection, {}):
            origin = self._origin._replace(connection_id=connection)
            self.accept(BrokerUnregistered(origin, key.broker_name, key.live_key, -1))


def _decoded(body: RegistrationBody) -> DecodedBody:
    try:
        return decode_register_body(*body)
    except BodyDecodeError as error:
        return error.reason


def _registered_key(event: AcceptedEvent) -> LeaseKey | None:
    if isinstance(event, BrokerRegistered):
        return event.lease_key
    if isinstance(event, BrokerHeartbeat) and event.proof is Proof.REGISTRATION:
        return event.lease_key
    return None


def a_body(
    topics: Mapping[str, Mapping[str, Any]] | None = None, counter: int = 1, stamp: int = 1, **wrapper: Any
) -> bytes:
    """Return the uncompressed registration body of a 5.x broker; ``stamp`` is the time in mappingDataVersion."""
    table = {"TopicTest": a_topic(), "baseTopic": a_topic()} if topics is None else topics
    fields = {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": counter, "stateVersion": 0, "timestamp": 1_000},
            "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": stamp},
            "topicConfigTable": {name: {**config, "topicName": name} for name, config in table.items()},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
            **wrapper,
        },
    }
    return orjson.dumps(fields)


def a_topic(perm: int = 6, queues: int = 8, flag: int = 0) -> dict[str, Any]:
    return {
        "attributes": {},
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": flag,
        "writeQueueNums": queues,
    }


def a_topic_config(name: str, queues: int) -> dict[str, Any]:
    """Return a TopicConfig as brokers write it, with its fields in alphabetical order."""
    return dict(sorted({**a_topic(queues=queues), "topicName": name}.items()))


def a_broker_header(addr: str = MASTER, broker_id: int = 0, /, **changes: str | None) -> dict[str, str]:
    """Return the ext fields that brokers send with all their requests; None removes one."""
    fields: dict[str, str | None] = {
        "brokerName": "broker-a",
        "brokerAddr": addr,
        "clusterName": "c0",
        "brokerId": str(broker_id),
    }
    return {k: v for k, v in (fields | changes).items() if v is not None}


def a_registration_request(
    addr: str = MASTER,
    broker_id: int = 0,
    /,
    *,
    body: bytes | None = None,
    zone_name: str | None = None,
    version: int = V5_3_3,
    crc: int | None = None,
    **changes: str | None,
) -> RemotingCommand:
    """Return a registration (103) of a 5.x broker, with its checksum."""
    body = a_body() if body is None else body
    fields: dict[str, str | None] = {
        "haServerAddr": addr.replace(":10911", ":10912"),
        "enableActingMaster": "false",
        "compressed": "false",
        "__ZONE_NAME": zone_name,
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc),
    }
    ext_fields = a_broker_header(addr, broker_id, **(fields | changes))
    return RemotingCommand(RequestCode.REGISTER_BROKER, version=version, ext_fields=ext_fields, body=body)


def a_route_request(topic: str = "TopicTest", version: int = V5_3_3, **fields: str) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, version=version, opaque=7, ext_fields={"topic": topic, **fields}
    )
