"""The gateway: applies accepted events to the view and writes them to Kafka; it contains no wire format and no HTTP.

Events go from ``gateway`` to a partition (``partition_log``), as ``records`` to the ``publisher``, and during an outage
of Kafka to a buffer. ``operator_changes`` reports their outcomes. ``observed_time`` measures how long the server could
receive heartbeats, and when a tick is due. Only the ``server`` package may import it.
"""
