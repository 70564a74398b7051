"""The HTTP port: health, metrics, routes and changes as JSON, the console (docs/http.md). Only ``main`` imports it."""
