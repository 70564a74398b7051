"""What a server does before it answers: process, identity, sockets, tables and log; ``main`` wires the parts together.

``opening`` reads the tables and applies the log's tail. ``identity`` stops a server that would write to a log of other
tables, or under another server's id. Only the ``server`` package may import it.
"""
