"""Questions to the history: routes as they were, sessions of brokers, flapping, outages; for people and scripts."""
