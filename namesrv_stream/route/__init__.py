"""The domain of a name server: events, broker groups, changes, the route table, and what follows from them.

It contains RocketMQ's rules for routes, the JSON of events and registrations, the fold (``fold``), and a server's view:
committed rows, and on top of them the events that the server has accepted (``view``). Everything is pure: no I/O,
no clock, no wire format, no Spark. Every other package may import it; it imports only ``errors`` and ``table_errors``.
"""
