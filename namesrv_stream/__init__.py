"""A RocketMQ name server whose state is a stream: events in Kafka, routes by Spark, changes in Delta tables."""

__version__ = "0.3.0.dev0"
