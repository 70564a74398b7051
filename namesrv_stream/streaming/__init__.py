"""The two Spark programs: the job (``route_table``) and the history process (``history``).

Only this package imports pyspark. The logic of the job is in ``route``, and the tables are in ``tables``; this package
hosts both in Spark and runs the processes. Only the command line and ``jobs`` import this package; it imports
``kafka``, ``tables``, ``route`` and ``settings``.
"""
