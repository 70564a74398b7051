"""The native lane: a C thread that answers repeated route queries without the interpreter; README.md describes it.

It contains the C library and its Python side, and no rules for routes. ``server`` and ``tools.doctor`` import it.
"""
