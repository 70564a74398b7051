"""Folds the log again with other timeouts, and reports which brokers would have expired with each of them.

It contains the analysis and the command ``what-if``; the log comes from ``tools.replay``, the fold from ``route``. Only
``cli`` imports it.
"""
