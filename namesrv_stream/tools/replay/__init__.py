"""Reads and folds the log again: to verify the tables, to rebuild lost ones, and to give the topic more partitions.

It presents the log as one sequence of records, whether Kafka or the archive in ``broker_events`` stores them. It has
the commands ``replay``, ``rebuild`` and ``repartition``. The fold itself is in ``route``. ``tools.what_if`` uses the
log; otherwise only ``cli`` imports this package.
"""
