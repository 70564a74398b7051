"""The job: it folds the event log in Spark and commits the changes to ``route_changes`` and ``route_state``.

It is a sub-package because it shares only the session with the history process.
"""
