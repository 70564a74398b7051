"""The history process: Kafka's records and the rows of ``route_changes`` become tables that analysts can read."""
