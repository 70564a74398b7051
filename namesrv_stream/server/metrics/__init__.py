"""A server's metrics for Prometheus; their names and HELP texts are in ``namesrv_stream.metrics``.

Code that causes an event counts it in ``Counters``. ``requests`` counts answers and their latencies, ``tables`` tracks
the served version and its age, and ``scrape`` collects everything. Only the ``server`` package may import it.
"""
