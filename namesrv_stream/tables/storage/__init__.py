"""Storage of tables: a local folder or an S3-compatible object store behind one interface.

It is a sub-package because no other module knows which of the two is used. Callers import from here.
"""

from namesrv_stream.settings import Settings
from namesrv_stream.tables.storage.folder import Folder
from namesrv_stream.tables.storage.interface import CommitWatch, Storage
from namesrv_stream.tables.storage.object_store import ObjectStore, one_line

__all__ = ["CommitWatch", "Folder", "ObjectStore", "Storage", "one_line", "tables_of"]


def tables_of(settings: Settings) -> Storage:
    """Return the storage of an installation's tables."""
    data = settings.data
    if data.store is None:
        return Folder(data.tables_dir)
    bucket, prefix = data.store
    options = {name.upper(): _text(value) for name, value in data.extra.items()}
    return ObjectStore(bucket, prefix, tuple(sorted(options.items())))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
