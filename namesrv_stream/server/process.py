"""What the process of a server needs of its machine and of its interpreter."""

import ctypes
import gc
import logging
import os
import resource
import sys
from importlib.abc import MetaPathFinder
from typing import Final

logger = logging.getLogger(__name__)

#: Of glibc's mallopt. Source: glibc, malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Blocks up to this size are taken from memory that the process has already, of which it keeps so much.
_REUSED_BYTES: Final = 32 << 20
_KEPT_BYTES: Final = 128 << 20

#: Files beside connections: listeners, Kafka, tables, logs, libraries.
_OTHER_FILES: Final = 512


def prepare_imports() -> None:
    """Keep out what only costs time and memory; before anything large is imported.

    That includes the collector, until ``keep_all``: hardly anything that a start imports and loads is ever garbage.
    """
    sys.meta_path.insert(0, _WithoutNumpy())
    # pyarrow's own allocator would keep, for as long as the server lives, what the largest read took: some 40 MB.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    gc.disable()


def keep_all() -> None:
    """Have the collector go on, without all that is there: it lives as long as the process."""
    gc.collect()
    gc.freeze()
    gc.enable()


def prepare_process(max_connections: int) -> None:
    """Make room for ``max_connections``."""
    # A large registration makes hundreds of thousands of objects that stay; Python's 700 has the collector walk the
    # young ones hundreds of times meanwhile, an eighth of the time that the registration takes. Nor may it walk too
    # many at once: a million take half a second, in which nobody is answered; these 50,000 some 10 ms.
    gc.set_threshold(10_000, 5, 200)
    _reuse_memory()
    _allow_open_files(max_connections)


def _reuse_memory() -> None:
    """Have the frames of large registrations, a third of a megabyte each, put where those before them were.

    Otherwise glibc maps fresh pages for each copy of one, and the kernel clears them and takes them back: ten times
    what the copy takes. Other allocators, where the process runs with one, have no ``mallopt`` or do not mind.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _REUSED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _allow_open_files(connections: int) -> None:
    """Raise the soft limit of open files, often 1,024, as far as the connections need and the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        logger.warning("open files are limited to %d, fewer than connections allowed=%d", hard, connections)
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _WithoutNumpy(MetaPathFinder):
    """Hides numpy and pandas from this process.

    pyarrow imports them where it can: numpy at once, for 0.1 s and 20 MB, pandas with the first array, for 45 MB.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname in ("numpy", "pandas"):
            raise ModuleNotFoundError(f"the server does without {fullname}", name=fullname)
