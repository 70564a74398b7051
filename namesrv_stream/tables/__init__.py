"""Everything that touches a Delta table: schemas, storage, commits, readers, follower, compaction, repair.

Only this package knows Delta and where tables are stored; the history process alone writes its own tables by Spark.
It may be imported by every process of the product, and imports ``route`` and ``settings``.
"""
