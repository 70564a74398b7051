"""Where tables are: a folder or an object store behind one interface."""

from namesrv_stream.settings import Settings
from namesrv_stream.tables.storage.folder import Folder
from namesrv_stream.tables.storage.object_store import ObjectStore, one_line
from namesrv_stream.tables.storage.storage import Storage
from namesrv_stream.tables.storage.watch import CommitWatch

__all__ = ["CommitWatch", "Folder", "ObjectStore", "Storage", "one_line", "tables_of"]


def tables_of(settings: Settings) -> Storage:
    """Where the tables of an installation are."""
    data = settings.data
    if data.store is None:
        return Folder(data.tables_dir)
    bucket, prefix = data.store
    options = {name.upper(): _text(value) for name, value in data.extra.items()}
    return ObjectStore(bucket, prefix, tuple(sorted(options.items())))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
