"""The shell that brokers, clients and people reach: connections, the gateway to Kafka, HTTP. asyncio lives here."""
