"""The lanes, which answer repeated route queries: a C thread, and one in Python; README.md describes them.

They contain no rules for routes. ``server`` and ``tools.doctor`` import this package.
"""
