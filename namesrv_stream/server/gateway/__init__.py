"""From accepted events to the view and to the log.

``gateway`` takes what processors accept; ``partition_log`` takes it to one partition, in ``records`` that ``publisher``
hands to Kafka; while Kafka is away ``outage_buffer`` keeps it. ``operator_changes`` are answered once they are in the
log. ``backlog`` and ``observed_time`` say what a tick may state, and for how long the server could listen.
"""
