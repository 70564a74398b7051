"""Loads the library and declares the functions of ``lane.h`` for ctypes."""

import ctypes
from pathlib import Path
from typing import Final

#: A result of ``lane_hand_over``.
HANDED_OVER: Final = -1

_FILE: Final = Path(__file__).with_name("libnative_lane.so")
_POINTER: Final = ctypes.c_void_p
_TEXT: Final = ctypes.c_char_p
_SIZE: Final = ctypes.c_size_t
_U64: Final = ctypes.c_uint64
_U64S: Final = ctypes.POINTER(_U64)


class Returned(ctypes.Structure):
    """``struct returned`` without the bytes that follow it."""

    _fields_ = (("next", _POINTER), ("id", _U64), ("unread", _SIZE), ("unsent", _SIZE))

    id: int
    unread: int
    unsent: int


_RETURNED: Final = ctypes.POINTER(Returned)
#: Name of a function → types of its result and arguments.
_FUNCTIONS: Final = {
    "lane_start": (_POINTER, (_SIZE, _U64, _U64S, _SIZE)),
    "lane_stop": (None, (_POINTER,)),
    "lane_free": (None, (_POINTER,)),
    "lane_hand_over": (ctypes.c_ssize_t, (_POINTER, ctypes.c_int, _U64, _TEXT, _SIZE, _TEXT, _SIZE)),
    "lane_take_back": (ctypes.c_bool, (_POINTER, ctypes.c_int, _U64)),
    "lane_returned_fd": (ctypes.c_int, (_POINTER,)),
    "lane_next_returned": (_RETURNED, (_POINTER,)),
    "lane_free_returned": (None, (_RETURNED,)),
    "lane_know": (None, (_POINTER, _TEXT, _SIZE, _TEXT, _SIZE, _TEXT, _SIZE, ctypes.c_uint32)),
    "lane_find": (_SIZE, (_POINTER, _TEXT, _SIZE, _TEXT, _SIZE)),
    "lane_forget": (None, (_POINTER, _TEXT, _SIZE)),
    "lane_forget_all": (None, (_POINTER,)),
    "lane_active": (_SIZE, (_POINTER, _U64S, _SIZE)),
    "lane_counters": (None, (_POINTER, _U64S)),
}


def load_library() -> ctypes.PyDLL | None:
    """Load the library; None if this build does not contain it.

    The calls keep the interpreter lock. None waits longer than the thread takes to serve one connection, except
    ``lane_stop``, which waits for all pending events.

    Raises:
        OSError: The file exists, but cannot be loaded.
        AttributeError: The file belongs to another release.
    """
    if not _FILE.exists():
        return None
    library = ctypes.PyDLL(str(_FILE), use_errno=True)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
