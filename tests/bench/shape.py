"""The routes that are registered for a measurement: how many topics on how many brokers."""

from dataclasses import dataclass

_FIRST_PORT = 40_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A set of routes.

    Attributes:
        topics: Number of topics, which are named ``prefix0``, ``prefix1``, …
        brokers: Number of master brokers, each with its own broker name.
        width: Number of brokers of each topic; topic ``i`` is on brokers ``i·width`` to ``i·width + width - 1``, modulo
            ``brokers``.
        prefix: See ``topics``.
        queues: Read and write queues of a topic on each of its brokers.
        cluster: Cluster of all brokers.
    """

    topics: int = 2_000
    brokers: int = 4
    width: int = 4
    prefix: str = "bench-topic-"
    queues: int = 8
    cluster: str = "bench"

    def __post_init__(self) -> None:
        """Check that there are enough brokers for each topic."""
        assert 0 < self.width <= self.brokers, "a topic cannot be on more brokers than there are"

    @property
    def topic_names(self) -> list[str]:
        """Return the names of all topics."""
        return [f"{self.prefix}{topic}" for topic in range(self.topics)]

    def topics_of(self, broker: int) -> list[str]:
        """Return the names of the topics of a broker."""
        return [
            f"{self.prefix}{topic}"
            for topic in range(self.topics)
            if (broker - topic * self.width) % self.brokers < self.width
        ]

    def identity_of(self, broker: int) -> dict[str, str]:
        """Return the ext fields that identify a broker in all its requests."""
        return {
            "clusterName": self.cluster,
            "brokerName": f"{self.cluster}-broker-{broker}",
            "brokerAddr": f"127.0.0.1:{_FIRST_PORT + broker}",
            "brokerId": "0",
        }
