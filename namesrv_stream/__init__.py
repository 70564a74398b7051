"""A name server for RocketMQ: events in Kafka, routes computed by Spark, changes in Delta tables."""

__version__ = "0.3.0.dev0"
