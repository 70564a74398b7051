"""What one connection's requests are answered, and what becomes of what they say.

No answer is ever given to a oneway request. The answer to an operator's change waits until the change is in the log;
others may overtake it.
"""

from collections.abc import Callable, Generator
from time import perf_counter_ns
from typing import Final

from namesrv_stream.clock import Clock
from namesrv_stream.errors import NamesrvStreamError, RequestError, SystemBusy
from namesrv_stream.processor.dispatch import process_in_steps
from namesrv_stream.processor.name_server import Accepted, Answer, Call, NameServer, Peer
from namesrv_stream.processor.prepared import PreparedAnswers
from namesrv_stream.processor.prepared_heartbeats import PreparedHeartbeats
from namesrv_stream.processor.prepared_registrations import PreparedRegistrations
from namesrv_stream.processor.response import error_response
from namesrv_stream.processor.steps import at_once
from namesrv_stream.remoting.codes import ResponseCode
from namesrv_stream.remoting.command import RemotingCommand, response_to
from namesrv_stream.remoting.frame import Frame, decode_frame, encode_frame
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered, Origin, Proof
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.server.gateway import Gateway
from namesrv_stream.server.request_figures import RequestFigures

#: Longer requests are dear. The longest question has some hundred bytes; 2,000 topics take 20 kB if they are deflated.
DEAR_BYTES: Final = 16 * 1024


class Answering:
    """Answers the requests of one connection.

    Attributes:
        caller: Who sends them, for the processors.
        registered: The brokers that registered over the connection.
        changes: How many of an operator's changes wait for the log.

    Args:
        server: What is asked.
        prepared: Learns from what it did not answer.
        gateway: Takes what is accepted.
        clock: The server's.
        figures: Told of each answer.
        origin: Of the connection.
        max_changes: More that wait for the log are refused.
        on_settled: Given the answer, if there is any, to a change that waited.
        on_fault: Given the code of a request that failed by a fault of ours, while that is being handled.
        on_refused: Given the reason for the log where the peer may not ask this.
    """

    def __init__(
        self,
        server: NameServer,
        prepared: PreparedAnswers,
        gateway: Gateway,
        clock: Clock,
        figures: RequestFigures,
        origin: Origin,
        max_changes: int,
        on_settled: Callable[[bytes | None], None],
        on_fault: Callable[[int], None],
        on_refused: Callable[[str], None],
    ) -> None:
        self.caller = Peer("", False)
        self.registered: dict[LeaseKey, None] = {}
        self.changes = 0
        self._server = server
        self._prepared = prepared
        self._heartbeats = PreparedHeartbeats(server, origin)
        self._registrations = PreparedRegistrations(server, origin)
        self._uncounted: dict[int, int] = {}  # of these, by request code
        self._gateway = gateway
        self._clock = clock
        self._figures = figures
        self._origin = origin
        self._max_changes = max_changes
        self._on_settled = on_settled
        self._on_fault = on_fault
        self._on_refused = on_refused

    def said_again(self, frame: bytes, began_ns: int) -> bytes | None:
        """The answer to a heartbeat that this peer has brought before; None for anything else. To be counted.

        Args:
            frame: Without length prefix.
            began_ns: When work on it began, by ``perf_counter_ns``.
        """
        try:
            said = self._heartbeats.answer(frame)
            if said is None:
                return None
            self._gateway.heard(said.heartbeat)
        except Exception:
            return self._failed(decode_frame(frame), began_ns)  # which may have been accepted: not a second time
        self._uncounted[said.code] = self._uncounted.get(said.code, 0) + 1
        return said.answer

    def count_said_again(self, took_ns: int) -> None:
        """All that ``said_again`` answered since this was last called: of one read, timed together."""
        for code, count in self._uncounted.items():
            self._figures.answered(code, ResponseCode.SUCCESS, took_ns, count)
        self._uncounted.clear()

    def at_once(self, frame: bytes, began_ns: int) -> bytes | None:
        """The answer to a request; None for none, or none yet.

        Args:
            frame: Without length prefix.
            began_ns: When work on it began, by ``perf_counter_ns``.

        Raises:
            RemotingError: The frame breaks the protocol.
        """
        return at_once(self.in_steps(frame, began_ns))

    def in_steps(self, frame: Frame, began_ns: int) -> Generator[None, None, bytes | None]:
        """Likewise, in steps between which the server may do anything else; nothing is accepted before the last one.

        Raises:
            RemotingError: As ``at_once``.
        """
        if len(frame) > DEAR_BYTES:
            answer = self._registered_again(frame, began_ns)
            if answer is not None:
                return answer
        request = decode_frame(frame)
        if request.is_response:
            return None  # we ask nobody, so this answers nothing
        try:
            call = Call(request, self._origin, self._clock.monotonic_ms(), self.caller)
            response = self._act(request, (yield from process_in_steps(self._server, call)), began_ns)
            if response is None:
                return None  # later
            self._keep(frame, request, response)
        except Exception:
            # A fault of ours is no reason to close, which would count as the death of the peer's brokers.
            return self._failed(request, began_ns)
        return self._told(request, response, began_ns)

    def _registered_again(self, frame: Frame, began_ns: int) -> bytes | None:
        """The answer to a long registration that says nothing new; None for anything else."""
        try:
            said = self._registrations.answer(frame, self._clock.monotonic_ms())
            if said is None:
                return None
            self._gateway.heard(said.heartbeat)
        except Exception:
            return self._failed(decode_frame(frame), began_ns)  # as above
        self._figures.answered(said.code, ResponseCode.SUCCESS, perf_counter_ns() - began_ns)
        return said.answer

    def _keep(self, frame: Frame, request: RemotingCommand, response: RemotingCommand) -> None:
        """Be prepared for more of the kind, unless it is oneway."""
        if len(frame) > DEAR_BYTES:
            self._registrations.keep(frame, request, response)
        else:
            self._prepared.keep(bytes(frame), request, response)
            self._heartbeats.keep(bytes(frame), request, response)

    def _failed(self, request: RemotingCommand, began_ns: int) -> bytes | None:
        self._on_fault(request.code)
        response = response_to(request, ResponseCode.SYSTEM_ERROR, "the request failed unexpectedly")
        return self._told(request, response, began_ns)

    def _told(self, request: RemotingCommand, response: RemotingCommand, began_ns: int) -> bytes | None:
        encoded = None if request.is_oneway else _encoded(request, response)
        self._figures.answered(request.code, response.code, perf_counter_ns() - began_ns)
        return encoded

    def _act(self, request: RemotingCommand, answer: Answer, began_ns: int) -> RemotingCommand | None:
        """Do what was accepted; the response, or None where it waits for the log."""
        if answer.refusal:
            self._on_refused(answer.refusal)
        if answer.accepted:
            if answer.is_logged_first:
                return self._change(request, answer, began_ns)
            self._remember(answer.accepted)
            self._gateway.accept(answer.accepted)
        if answer.options:
            self._gateway.view.reconfigure(answer.options)
        return answer.response

    def _change(self, request: RemotingCommand, answer: Answer, began_ns: int) -> RemotingCommand | None:
        """Hand an operator's change to the log; an answer only where it takes none."""

        def settled(error: NamesrvStreamError | None) -> None:
            self.changes -= 1
            if error is None and answer.options:
                self._gateway.view.reconfigure(answer.options)
            self._on_settled(
                self._told(request, error_response(request, error) if error else answer.response, began_ns)
            )

        try:
            if self.changes >= self._max_changes:
                raise SystemBusy(f"{self.changes} changes of this connection wait for the log already")
            self._gateway.change(answer.accepted, settled)
        except RequestError as error:
            return error_response(request, error)
        self.changes += 1
        return None

    def _remember(self, accepted: tuple[Accepted, ...]) -> None:
        for event, _ in accepted:
            if isinstance(event, BrokerRegistered | BrokerHeartbeat) and _is_registration(event):
                self.registered[event.lease_key] = None


def _is_registration(event: BrokerRegistered | BrokerHeartbeat) -> bool:
    return isinstance(event, BrokerRegistered) or event.proof is Proof.REGISTRATION


def _encoded(request: RemotingCommand, response: RemotingCommand) -> bytes:
    try:
        return encode_frame(response)
    except ValueError as error:
        remark = f"the answer cannot be written: {error}"
        return encode_frame(response_to(request, ResponseCode.SYSTEM_ERROR, remark))
