"""The log read again: out of Kafka, and out of the table ``broker_events`` where Kafka no longer has it."""
