"""The webhook: reports changes of routes and deaths of brokers to a URL, as JSON over HTTP (docs/webhook.md).

It is a process of its own, which ``up`` starts if a URL is configured. It follows the changes that a name server
publishes over HTTP, and reads neither Kafka nor tables. Only ``cli`` imports it.
"""
