"""The fast path of long registrations: one that says nothing new is known by its hash, and its header by its bytes.

A broker of thousands of topics sends hundreds of kilobytes every half a minute, in which the opaque, a stamp in the
body and so its checksum are new. The header without these two numbers is the key, kept only if other numbers in their
places decode to the same request with them. Whatever is new, or is to be logged in full, is left to the general path,
which sums the body up once more: 0.2 ms of some that a changed registration takes.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from xxhash import xxh3_128

from namesrv_stream.errors import RemotingError
from namesrv_stream.processor.broker import broker_of, is_sound, registered_response, unchanged_hash
from namesrv_stream.processor.forms import Forms
from namesrv_stream.processor.known_answers import is_canonical
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.processor.prepared_heartbeats import Answered
from namesrv_stream.processor.registration_hash import body_hash, header_hash
from namesrv_stream.remoting.acl import SIGNATURE
from namesrv_stream.remoting.codes import RequestCode, ResponseCode, SerializeType
from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.frame import Frame, decode_frame, encode_frame
from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader
from namesrv_stream.route.events import BrokerHeartbeat, Origin, Proof
from namesrv_stream.route.lease import LeaseKey

_OPAQUE: Final = b'"opaque":'
_CRC: Final = b'"bodyCrc32":"'
#: Before a header: its length, and the kind of its encoding.
_WORD_BYTES: Final = 4
_MAX_HEADER_BYTES: Final = 2 * 1024


class _Said(NamedTuple):
    """A registration's header as it was understood.

    Attributes:
        request: Without its body.
        hasher: Of what the header says, to be copied.
    """

    request: RemotingCommand
    header: RegisterBrokerRequestHeader
    key: LeaseKey
    hasher: xxh3_128


class _Cut(NamedTuple):
    """A frame: ``form`` is its header without the two numbers and what ends them."""

    form: bytes
    opaque: bytes
    crc: bytes
    body_at: int


class PreparedRegistrations:
    """Of one connection: whether its peer may say this was found out when it said it first.

    Args:
        server: Who is told.
        origin: Of the connection.
    """

    def __init__(self, server: NameServer, origin: Origin) -> None:
        self._server = server
        self._origin = origin
        self._forms: Forms[_Said] = Forms()

    def answer(self, frame: Frame, now_ms: int) -> Answered | None:
        """What a request frame without length prefix does, and its answer; None for the general path."""
        cut = _cut(frame) if self._forms else None
        said = self._forms.get(cut.form) if cut else None
        if cut is None or said is None or not (is_canonical(cut.opaque) and is_canonical(cut.crc)):
            return None
        server, key = self._server, said.key
        wanted = unchanged_hash(server, self._origin, key, now_ms)
        if wanted is None:
            return None
        with memoryview(frame) as view, view[cut.body_at :] as body:
            if not is_sound(body, int(cut.crc)) or body_hash(said.hasher, body) != wanted:
                return None
        request = replace(said.request, opaque=int(cut.opaque))
        response = registered_response(server, request, said.header, server.table.group(key.broker_name))
        heartbeat = BrokerHeartbeat(self._origin, key.broker_name, key.live_key, Proof.REGISTRATION, wanted)
        try:
            return Answered(request.code, encode_frame(response), heartbeat)
        except ValueError:  # what it says of the master does not fit: the general path has an answer to that
            return None

    def keep(self, frame: Frame, request: RemotingCommand, response: RemotingCommand) -> None:
        """Learn what a header of the plain kind says."""
        ext_fields = request.ext_fields or {}
        if (
            request.code != RequestCode.REGISTER_BROKER
            or request.serialize_type is not SerializeType.JSON
            or response.code != ResponseCode.SUCCESS
            or request.is_oneway
            or SIGNATURE in ext_fields  # of the body, too
        ):
            return
        cut = _cut(frame)
        if cut is None or self._forms.get(cut.form) or not _differs_there_only(frame, cut, request):
            return
        header = RegisterBrokerRequestHeader.from_ext_fields(ext_fields)
        key = broker_of(header.broker_name, header.cluster_name, header.broker_addr)
        self._forms.put(cut.form, key, _Said(replace(request, body=None), header, key, header_hash(header)))


def _cut(frame: Frame) -> _Cut | None:
    body_at = _WORD_BYTES + int.from_bytes(frame[1:_WORD_BYTES], "big")
    if frame[0] != SerializeType.JSON or body_at > _MAX_HEADER_BYTES:
        return None
    before, mark, rest = bytes(frame[_WORD_BYTES:body_at]).partition(_CRC)
    crc, _, behind = rest.partition(b'"')
    before, mark, rest = (before + mark + behind).partition(_OPAQUE)
    opaque, _, behind = rest.partition(b",")
    return _Cut(before + mark + behind, opaque, crc, body_at)


def _frame_of(form: bytes, opaque: int, crc: int) -> bytes:
    """A frame without a body, put together as ``_cut`` takes it apart."""
    before, mark, behind = form.partition(_OPAQUE)
    before, crc_mark, behind = (before + mark + b"%d," % opaque + behind).partition(_CRC)
    header = before + crc_mark + b'%d"' % crc + behind
    return len(header).to_bytes(_WORD_BYTES, "big") + header


def _differs_there_only(frame: Frame, cut: _Cut, request: RemotingCommand) -> bool:
    """Whether the two numbers are what stands there: in no comment, no other object, not overridden behind."""
    if not (is_canonical(cut.opaque) and is_canonical(cut.crc)):
        return False
    opaque, crc = int(cut.opaque), int(cut.crc)
    return frame[: cut.body_at] == _frame_of(cut.form, opaque, crc) and all(
        _decodes_to(_frame_of(cut.form, *numbers), _with(request, *numbers))
        for numbers in ((opaque, crc), ((opaque + 1) % 10, (crc + 1) % 10))
    )


def _with(request: RemotingCommand, opaque: int, crc: int) -> RemotingCommand:
    return replace(request, opaque=opaque, ext_fields={**(request.ext_fields or {}), "bodyCrc32": str(crc)}, body=None)


def _decodes_to(frame: bytes, request: RemotingCommand) -> bool:
    try:
        return decode_frame(frame) == request
    except RemotingError:
        return False
