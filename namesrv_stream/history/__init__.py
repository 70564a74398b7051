"""Queries over the history tables: past routes, sessions of brokers, flapping, outages, and the availability report.

Every question is a SQL file in ``sql``, which DuckDB executes; ``drawing`` contains charts, ``report`` the report.
``streaming.history`` writes the tables. The server, the console and the command line import this package; it imports
``tables``, ``client``, ``processor``, ``route`` and ``settings``.
"""
