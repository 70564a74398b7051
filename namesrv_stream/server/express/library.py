"""The functions of ``express.h``, as Python calls them."""

import ctypes
from importlib.util import find_spec
from typing import Final

#: Of ``express_lend``.
LENT: Final = -1

_MODULE: Final = "namesrv_stream.server.express._express"
_POINTER: Final = ctypes.c_void_p
_SIZE: Final = ctypes.c_size_t


class GivenBack(ctypes.Structure):
    """``struct given_back``, without the bytes behind it."""

    _fields_ = (("next", _POINTER), ("id", ctypes.c_uint64), ("unread", _SIZE), ("unsent", _SIZE))

    id: int
    unread: int
    unsent: int


_U64S: Final = ctypes.POINTER(ctypes.c_uint64)
#: Name to result and arguments.
_FUNCTIONS: Final = {
    "express_start": (_POINTER, (_SIZE, ctypes.c_uint64, _U64S, _SIZE)),
    "express_stop": (None, (_POINTER,)),
    "express_free": (None, (_POINTER,)),
    "express_lend": (
        ctypes.c_ssize_t,
        (_POINTER, ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p, _SIZE, ctypes.c_char_p, _SIZE),
    ),
    "express_take_back": (ctypes.c_bool, (_POINTER, ctypes.c_int, ctypes.c_uint64)),
    "express_given_back_fd": (ctypes.c_int, (_POINTER,)),
    "express_given_back": (ctypes.POINTER(GivenBack), (_POINTER,)),
    "express_forget_given_back": (None, (ctypes.POINTER(GivenBack),)),
    "express_find": (_SIZE, (_POINTER, ctypes.c_char_p, _SIZE, ctypes.c_char_p, _SIZE)),
    "express_know": (
        None,
        (_POINTER, ctypes.c_char_p, _SIZE, ctypes.c_char_p, _SIZE, ctypes.c_char_p, _SIZE, ctypes.c_uint32),
    ),
    "express_forget": (None, (_POINTER, ctypes.c_char_p, _SIZE)),
    "express_forget_all": (None, (_POINTER,)),
    "express_active": (_SIZE, (_POINTER, _U64S, _SIZE)),
    "express_figures": (None, (_POINTER, _U64S)),
}


def load_library() -> ctypes.PyDLL | None:
    """The compiled functions; None where they were not built, as on a machine without a C compiler.

    No call waits for longer than it takes to serve one connection, so none gives up the interpreter meanwhile; but for
    the end, which waits for those that are due.

    Raises:
        OSError: They are there, and cannot be loaded.
        AttributeError: They are those of another release.
    """
    found = find_spec(_MODULE)
    if found is None or found.origin is None:
        return None
    library = ctypes.PyDLL(found.origin, use_errno=True)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
