"""What a server tells Prometheus; the metrics' names are in ``namesrv_stream.metrics``.

Events are counted by ``Counters`` where they happen. ``requests`` counts answers with their latencies, ``tables`` says
what is served and how old it is, and ``scrape`` gathers all.
"""
