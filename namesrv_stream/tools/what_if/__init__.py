"""Other timeouts: the fold, run again over the log with each of them, and what it would have expired.

It contains the analysis and the command ``what-if``; the log comes from ``tools.replay``, the fold from ``route``. Only
``cli`` imports it.
"""
