"""Hypothesis strategies for the wire: valid commands, and valid bytes that are then damaged and split."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

from namesrv_stream.remoting.command import LanguageCode, RemotingCommand, SerializeType
from namesrv_stream.remoting.frame import encode_frame

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)

_TEXT = st.text(max_size=8)
_BODY = st.none() | st.binary(min_size=1, max_size=24)


def json_commands() -> st.SearchStrategy[RemotingCommand]:
    """Commands that a JSON header carries without loss."""
    return st.builds(
        RemotingCommand,
        code=INT32,
        language=st.none() | st.sampled_from(LanguageCode),
        version=INT32,
        opaque=INT32,
        flag=INT32,
        remark=st.none() | _TEXT,
        ext_fields=st.none() | st.dictionaries(_TEXT, _TEXT, max_size=3),
        body=_BODY,
        serialize_type=st.just(SerializeType.JSON),
    )


def rocketmq_commands() -> st.SearchStrategy[RemotingCommand]:
    """Commands that a binary header carries without loss; it does not distinguish empty values from absent ones."""
    text = st.text(min_size=1, max_size=8)
    return st.builds(
        RemotingCommand,
        code=INT16,
        language=st.sampled_from(LanguageCode),
        version=INT16,
        opaque=INT32,
        flag=INT32,
        remark=st.none() | text,
        ext_fields=st.none() | st.dictionaries(text, text, min_size=1, max_size=3),
        body=_BODY,
        serialize_type=st.just(SerializeType.ROCKETMQ),
    )


def commands() -> st.SearchStrategy[RemotingCommand]:
    """Commands of both serialisations."""
    return json_commands() | rocketmq_commands()


def streams(max_frames: int = 3) -> st.SearchStrategy[bytes]:
    """Valid streams of up to ``max_frames`` frames."""
    return st.lists(commands().map(encode_frame), min_size=1, max_size=max_frames).map(b"".join)


@st.composite
def mutations(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """Valid bytes with a few changes: overwritten, removed, duplicated or inserted bytes."""
    data = bytearray(draw(valid))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 16)))
        kind = draw(st.sampled_from(("overwrite", "cut", "double", "insert")))
        if kind == "overwrite":
            data[start:end] = draw(st.binary(min_size=end - start, max_size=end - start))
        elif kind == "cut":
            del data[start:end]
        elif kind == "double":
            data[end:end] = data[start:end]
        else:
            data[start:start] = draw(st.binary(max_size=8))
    return bytes(data)


@st.composite
def chunks(draw: st.DrawFn, data: st.SearchStrategy[bytes]) -> Sequence[bytes]:
    """Bytes split into pieces at arbitrary places; the joined pieces are the bytes."""
    whole = draw(data)
    cuts = sorted(draw(st.sets(st.integers(0, len(whole)), max_size=8)))
    edges = [0, *cuts, len(whole)]
    return [whole[start:end] for start, end in pairwise(edges)]
