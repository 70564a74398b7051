"""The domain model of a name server: events, broker groups, changes, the route table, and the rules for them.

The package contains RocketMQ's rules for routes, the JSON of events and registrations, the fold (``fold``), a server's
view (``view``: committed rows, and on top of them the events that the server has accepted), and explanations of missing
routes (``why``). Everything is pure: no I/O, no clock, no wire format, no Spark. Every other package may import it; it
imports only ``errors`` and ``table_errors``.
"""
