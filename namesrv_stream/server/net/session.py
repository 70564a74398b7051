"""Computes the answer to one request, and passes the events of the request to the gateway.

``connection`` decides when a request is answered. A oneway request never receives an answer. The answer to an
operator's change waits until the change is in the log; other answers may overtake it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter_ns

from namesrv_stream.clock import Clock
from namesrv_stream.errors import NamesrvStreamError, RequestError, SystemBusy
from namesrv_stream.metrics import Counters
from namesrv_stream.processor.dispatch import error_response, process
from namesrv_stream.processor.name_server import Answer, Call, DecodedBody, LongBody, NameServer, Peer
from namesrv_stream.remoting.command import RemotingCommand, ResponseCode, response_to
from namesrv_stream.remoting.frame import decode_frame, encode_frame
from namesrv_stream.route.address_views import AddressView, AddressViews
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered, BrokerUnregistered, Origin, Proof
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.server.gateway.gateway import Gateway
from namesrv_stream.server.net.connections import Connection, Connections
from namesrv_stream.server.net.decoder import RegistrationDecoder
from namesrv_stream.server.net.long_answers import LongAnswers
from namesrv_stream.server.net.request_metrics import RequestMetrics
from namesrv_stream.server.net.response_cache import ResponseCache
from namesrv_stream.server.tls import ServerTls
from namesrv_stream.server.turns import Queue, Turns


@dataclass(frozen=True, slots=True)
class Services:
    """The services that all connections of a server share; ``origin`` names the server and no connection."""

    name_server: NameServer
    responses: ResponseCache
    gateway: Gateway
    connections: Connections
    turns: Turns
    long_answers: LongAnswers
    decoder: RegistrationDecoder
    tls: ServerTls
    origin: Origin
    request_metrics: RequestMetrics
    counters: Counters
    clock: Clock


class Session:
    """Computes the answers to the requests that a peer (``caller``) sends over one connection.

    Attributes:
        registered: Brokers that registered over the connection.
        changes: Number of operators' changes that wait for the log.
    """

    def __init__(self, services: Services, connection: Connection) -> None:
        self.caller = Peer("", False)
        self.registered: dict[LeaseKey, None] = {}
        self.changes = 0
        self.origin = services.origin._replace(connection_id=connection.connection_id)
        self._services = services
        self._connection = connection
        self._views: AddressViews | None = None  # from which the next two were chosen; None: to be chosen again
        self._view: AddressView | None = None
        self._view_number = 0
        self._alive: LeaseKey | None = None  # the broker whose registration waits

    def answer(self, frame: bytes) -> bytes | None:
        """Answer a frame without length prefix; None if there is no answer, or not yet.

        Raises:
            RemotingError: The frame breaks the protocol.
        """
        began_ns = perf_counter_ns()
        found = self._services.responses.find(frame, self.origin.connection_id, self.view_number)
        if found is None:
            request = decode_frame(frame)
            return None if request.is_response else self._answer(request, began_ns, frame)  # never requested
        response, (code, heartbeat) = found
        if heartbeat is not None:
            try:
                self._services.gateway.accept_heartbeat(heartbeat)
            except Exception:
                return self._failed(decode_frame(frame), began_ns)
        self._services.request_metrics.answered(code, ResponseCode.SUCCESS, perf_counter_ns() - began_ns)
        return response

    @property
    def view_number(self) -> int:
        """The number of the client's address view: clients with the same number receive the same routes."""
        self._client_view()
        return self._view_number

    def _client_view(self) -> AddressView | None:
        if self._services.name_server.views is not self._views:
            self._choose_view()
        return self._view

    def _choose_view(self) -> None:
        """Choose the client's address view; a connection that registered a broker has none."""
        views = self._services.name_server.views
        view = None if self.registered else views.view_of(self.caller.listener, self.caller.client_host)
        self._views, self._view = views, view
        self._view_number = views.number if view is None else view.number

    def heartbeats(self) -> Iterator[BrokerHeartbeat]:
        """Yield heartbeats of the broker whose registration waits, and of those that are registered over the connection
        and over no newer one."""
        if self._alive is not None:
            yield BrokerHeartbeat(self.origin, *self._alive, Proof.HEARTBEAT)
        for key in list(self.registered):
            if self._services.gateway.view.is_held(key, self.origin.holder):
                yield BrokerHeartbeat(self.origin, *key, Proof.HEARTBEAT)

    def answer_again(self, request: RemotingCommand, decoded: DecodedBody | None) -> bytes | None:
        """Answer a request that has waited: for another process to decode its body, or for room in the log."""
        return self._answer(request, perf_counter_ns(), decoded=decoded)

    def _call(self, request: RemotingCommand, decoded: DecodedBody | None, *, is_new: bool) -> Call:
        must_wait = is_new and not self._services.turns.has_room(Queue.LOGGED)
        now_ms = self._services.clock.monotonic_ms()
        return Call(request, self.origin, now_ms, self.caller, decoded, self._client_view(), must_wait)

    def _answer(
        self, request: RemotingCommand, began_ns: int, frame: bytes | None = None, decoded: DecodedBody | None = None
    ) -> bytes | None:
        self._alive = None
        try:
            number = self.view_number  # the request itself may register a broker
            answer = process(self._services.name_server, self._call(request, decoded, is_new=frame is not None))
            self._alive = answer.alive
            if answer.undecoded is not None:
                self._connection.decode(request, answer.undecoded)
                return None
            if answer.is_postponed:
                self._connection.wait_for_room(request)
                return None
            response = self._act(request, answer, began_ns)
            if response is not None and answer.long is not None:
                response = self._with_body(request, response, answer.long, began_ns)
            if response is None:
                return None  # the answer follows later
            encoded = self._encoded(request, response, began_ns)
            if frame is not None and encoded is not None:
                self._services.responses.keep(frame, request, answer, encoded, self.origin.connection_id, number)
            return encoded
        except Exception:
            # An internal error must not close the connection, which would remove the peer's brokers.
            return self._failed(request, began_ns)

    def _failed(self, request: RemotingCommand, began_ns: int) -> bytes | None:
        self._services.connections.failed(self._connection, request.code)
        response = response_to(request, ResponseCode.SYSTEM_ERROR, "the request failed unexpectedly")
        return self._encoded(request, response, began_ns)

    def _encoded(self, request: RemotingCommand, response: RemotingCommand, began_ns: int) -> bytes | None:
        encoded = None if request.is_oneway else _encode(request, response)
        self._services.request_metrics.answered(request.code, response.code, perf_counter_ns() - began_ns)
        return encoded

    def _act(self, request: RemotingCommand, answer: Answer, began_ns: int) -> RemotingCommand | None:
        """Process the accepted events; return the response, or None while it waits for the log."""
        gateway = self._services.gateway
        if answer.refusal:
            self._services.connections.denied(self._connection, answer.refusal)
        if answer.accepted:
            if answer.is_logged_first:
                return self._change(request, answer, began_ns)
            for event, _ in answer.accepted:
                if isinstance(event, BrokerRegistered) or (
                    isinstance(event, BrokerHeartbeat) and event.proof is Proof.REGISTRATION
                ):
                    self.registered[event.lease_key] = None
                    self._views = None
                    self._services.connections.registered(self._connection)
                elif isinstance(event, BrokerUnregistered):
                    self.registered.pop(event.lease_key, None)
            gateway.accept(answer.accepted)
        if answer.options:
            gateway.view.reconfigure(answer.options)
        return answer.response

    def _with_body(
        self, request: RemotingCommand, response: RemotingCommand, long: LongBody, began_ns: int
    ) -> RemotingCommand | None:
        """Return the response with a body that may take long; None if the body is computed in the next turns."""
        if request.is_oneway:
            return response

        def on_body(body: bytes | None) -> None:
            if body is None:
                failed = response_to(request, ResponseCode.SYSTEM_ERROR, "the request failed unexpectedly")
                self._connection.answered(self._encoded(request, failed, began_ns))
            else:
                self._connection.answered(self._encoded(request, replace(response, body=body), began_ns))

        body = self._services.long_answers.get(long, on_body)
        if body is None:
            self._connection.answer_later()
            return None
        return replace(response, body=body)

    def _change(self, request: RemotingCommand, answer: Answer, began_ns: int) -> RemotingCommand | None:
        """Send an operator's change to the log; return a response only if it is rejected at once."""
        gateway = self._services.gateway

        def settled(error: NamesrvStreamError | None) -> None:
            self.changes -= 1
            if error is None and answer.options:
                gateway.view.reconfigure(answer.options)
            response = error_response(request, error) if error else answer.response
            self._connection.settled(self._encoded(request, response, began_ns))

        try:
            if self.changes >= self._services.connections.limits.max_requests_in_flight:
                raise SystemBusy(f"{self.changes} changes of this connection wait for the log already")
            gateway.change(answer.accepted, settled)
        except RequestError as error:
            return error_response(request, error)
        self.changes += 1
        return None


def _encode(request: RemotingCommand, response: RemotingCommand) -> bytes:
    try:
        return encode_frame(response)
    except ValueError as error:
        remark = f"the answer cannot be written: {error}"
        return encode_frame(response_to(request, ResponseCode.SYSTEM_ERROR, remark))
