"""The fast path of heartbeats: what a broker says again, byte for byte but for the opaque, is not decoded again.

904 and 322 come from each broker every few seconds, always the same. The frame without its opaque is the key; what is
kept is what the general path made of it, and only if another number in that place decodes to the same request with that
opaque. What such a request does, and what 322 is answered, depends on the broker's group alone: while that is the same
it is the same, else it is found out as in general.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.broker import broker_of, heartbeat_of, is_changed
from namesrv_stream.processor.forms import Forms
from namesrv_stream.processor.known_answers import is_canonical
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.processor.register_body import decode_data_version
from namesrv_stream.remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import decode_frame, encode_frame
from namesrv_stream.remoting.headers import QueryDataVersionRequestHeader
from namesrv_stream.route.events import BrokerHeartbeat, Origin
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.lease import LeaseKey
from namesrv_stream.route.model import DataVersion

_OPAQUE: Final = b'"opaque":'
_OPAQUE_BYTES: Final = len(_OPAQUE)
#: Before a header: its length, and the kind of its encoding.
_WORD_BYTES: Final = 4
_MAX_FRAME_BYTES: Final = 2 * 1024


class Answered(NamedTuple):
    """What became of a request.

    Attributes:
        heartbeat: Is accepted, and changes nothing.
    """

    code: int
    answer: bytes
    heartbeat: BrokerHeartbeat


class _Said(NamedTuple):
    """A request as it was understood.

    Attributes:
        frame_bytes: Of all of it: its opaque has as many digits as there were.
        asked: 322's DataVersion.
        told: What 322 was told: whether it is another one, and which there is.
        before: Of the answer, up to the opaque.
        behind: Of the answer, from there on.
        group: Of the broker, as it was then.
        heartbeat: What the request was then.
    """

    code: int
    frame_bytes: int
    key: LeaseKey
    asked: DataVersion | None
    told: tuple[bool, DataVersion | None]
    before: bytes
    behind: bytes
    group: BrokerGroup
    heartbeat: BrokerHeartbeat


class PreparedHeartbeats:
    """Of one connection: whether its peer may say this was found out when it said it first.

    Args:
        server: Who is told.
        origin: Of the connection.
    """

    def __init__(self, server: NameServer, origin: Origin) -> None:
        self._server = server
        self._origin = origin
        self._forms: Forms[_Said] = Forms()

    def answer(self, frame: bytes) -> Answered | None:
        """What a request frame without length prefix does, and its answer; None for the general path."""
        if not self._forms or len(frame) > _MAX_FRAME_BYTES:
            return None
        at = frame.find(_OPAQUE) + _OPAQUE_BYTES
        end = frame.find(b",", at)
        form = frame[:at] + frame[end:]
        said = self._forms.get(form)
        opaque = frame[at:end]
        if said is None or len(frame) != said.frame_bytes or not is_canonical(opaque):
            return None
        if self._server.table.groups.get(said.key.broker_name) is not said.group:
            said = self._found_out(said)
            if said is None:
                return None
            self._forms.put(form, (said.code, said.key), said)
        return Answered(said.code, said.before + opaque + said.behind, said.heartbeat)

    def _found_out(self, said: _Said) -> _Said | None:
        """What the request does to the group as it is now; None where it is answered otherwise, or does nothing."""
        group = self._server.table.groups.get(said.key.broker_name)
        heartbeat = heartbeat_of(self._server, self._origin, said.key)
        if group is None or heartbeat is None:
            return None
        if (
            said.code == RequestCode.QUERY_DATA_VERSION
            and is_changed(self._server, self._origin, said.key, said.asked) != said.told
        ):
            return None
        return said._replace(group=group, heartbeat=heartbeat)

    def keep(self, frame: bytes, request: RemotingCommand, response: RemotingCommand) -> None:
        """Learn what a request of the plain kind was answered; of brokers that this server hears, one form each."""
        if (
            request.code not in (RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION)
            or request.serialize_type is not SerializeType.JSON
            or response.serialize_type is not SerializeType.JSON
            or response.code != ResponseCode.SUCCESS
            or request.is_oneway
            or len(frame) > _MAX_FRAME_BYTES
        ):
            return
        at = frame.find(_OPAQUE) + _OPAQUE_BYTES
        end = frame.find(b",", at)
        header = QueryDataVersionRequestHeader.from_ext_fields(request.ext_fields)  # 904 has these fields, too
        key = broker_of(header.broker_name, header.cluster_name, header.broker_addr)
        heartbeat = heartbeat_of(self._server, self._origin, key)
        if heartbeat is None or not _differs_there_only(frame, at, end, request):
            return
        asked = decode_data_version(request.body) if request.code == RequestCode.QUERY_DATA_VERSION else None
        told = is_changed(self._server, self._origin, key, asked)
        group = self._server.table.group(key.broker_name)
        said = _Said(request.code, len(frame), key, asked, told, *_around_opaque(response, end - at), group, heartbeat)
        self._forms.put(frame[:at] + frame[end:], (said.code, key), said)  # a new DataVersion is another form of 322


def _differs_there_only(frame: bytes, at: int, end: int, request: RemotingCommand) -> bool:
    """Whether the opaque is what stands there: in no comment, no other object, not overridden behind."""
    opaque = frame[at:end]
    if at < _OPAQUE_BYTES or end < at or not is_canonical(opaque) or str(request.opaque).encode() != opaque:
        return False
    other = replace(request, opaque=(request.opaque + 1) % 10)
    header_bytes = int.from_bytes(frame[:_WORD_BYTES], "big") + 1 - len(opaque)
    word = header_bytes.to_bytes(_WORD_BYTES, "big")
    try:
        return decode_frame(word + frame[_WORD_BYTES:at] + b"%d" % other.opaque + frame[end:]) == other
    except RemotingError:
        return False


def _around_opaque(response: RemotingCommand, digits: int) -> tuple[bytes, bytes]:
    """The frame of an answer before and behind an opaque of so many digits."""
    written = encode_frame(replace(response, opaque=10 ** (digits - 1)))
    at = written.find(_OPAQUE) + _OPAQUE_BYTES
    return written[:at], written[at + digits :]
