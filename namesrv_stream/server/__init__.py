"""The shell that brokers, clients and people reach; asyncio lives here.

``main`` starts a server: what comes before it answers is in ``start``, and ``core`` wires what answers. A request goes
through ``net`` and the processors to ``view`` (what the server knows) and ``gateway`` (into the log), and back.
``changes`` and ``http`` show it to programs and people, ``metrics`` to Prometheus.
"""
