"""The HTTP port: health and figures for machines, routes and changes as JSON for people and scripts (docs/http.md)."""

from namesrv_stream.server.http.http_server import HttpServer

__all__ = ["HttpServer"]
