"""RocketMQ's request processors: pure functions from a request and the server's state to an answer and events.

It contains the rules of each request, the authorisation, and the reading and writing of bodies, but no I/O and no
clock. Every package from ``settings`` upwards in the order of pyproject.toml may import it; it imports ``remoting``,
``route`` and ``errors``.
"""
