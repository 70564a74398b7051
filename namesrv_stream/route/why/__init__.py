"""Why a topic or broker has no route, or one that some clients cannot use: the causes, and how to find them.

Pure: ``findings`` is the catalogue of causes, and ``explain`` finds the causes in the routes and rows that the caller
has collected.
"""
