"""Queries over the history tables: past routes, sessions of brokers, flapping, outages, and the availability report.

Every question is a SQL file in ``sql``, answered by DuckDB; ``drawing`` contains charts, ``report`` the report.
``streaming.history`` writes the tables. The server, the console and the command line import it; it imports ``tables``,
``client``, ``processor``, ``route`` and ``settings``.
"""
