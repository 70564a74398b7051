"""Delta tables at the level of their files: commits, data files, versions, writers and queries.

It is a sub-package because nothing in it depends on the content of a particular table, and only
this sub-package, the history tables and the compaction use delta-rs.
"""
