"""A RocketMQ name server whose state is a stream: Kafka in, Spark folds, Delta remembers, Python answers."""

__version__ = "0.1.0"
