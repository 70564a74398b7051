"""Committed changes for followers: from any position, in order and without gaps; the HTTP endpoint is in ``http``.

The newest rows come from memory (``feed``), older ones from the tables. Only the ``server`` package may import it.
"""
