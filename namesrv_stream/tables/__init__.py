"""The Delta tables: their schemas, storage, commits, readers, follower, compaction and repair.

Only this package knows Delta and where tables are stored. It contains no SQL and no Spark: queries of the history
are in ``history``, and the programs that compute rows are in ``streaming``. Every process may import it; it imports
``route`` and ``settings``.
"""
