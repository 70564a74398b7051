"""The HTTP port: health and figures for machines, routes and changes as JSON, a console (docs/http.md)."""
