"""The job: it folds the event log in Spark and commits the changes to ``route_changes`` and ``route_state``.

It is a sub-package because it shares only the code of the Spark session with the history process.
"""
