"""Reports changes of the routes and deaths of brokers to a URL, as JSON over HTTP: docs/webhook.md."""
