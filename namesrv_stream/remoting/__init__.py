"""The wire format of RocketMQ's remoting protocol: frames, commands, headers, signatures, and fastjson's dialect.

It also contains the preamble of the PROXY protocol and Java's properties format. Everything is pure: no sockets and no
I/O. It contains no knowledge of routes and no bodies of requests; these are in ``processor``. ``processor``,
``server``, ``client`` and what builds on them may import it; it imports only ``errors``.
"""
