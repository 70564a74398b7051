"""Delta's own files: commits, data files and versions of a table, wherever it is stored."""
