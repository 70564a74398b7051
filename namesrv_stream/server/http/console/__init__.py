"""The console at ``/``: pages for people, made here and kept fresh by a little script of ours."""

from namesrv_stream.server.http.console.console_page import ConsolePage, ConsoleSources

__all__ = ["ConsolePage", "ConsoleSources"]
