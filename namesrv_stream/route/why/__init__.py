"""Why a topic or broker has no route, or one that some clients cannot use: the causes, and how to find them.

``findings`` is the catalogue of causes. ``explain`` finds the causes in the routes and rows that the caller has
collected; it performs no I/O.
"""
