"""Starts all parts on one machine as child processes, watches and restarts them, and stops them together.

It contains no part itself: a child runs the same command that a user could run. Only ``cli`` imports it.
"""
