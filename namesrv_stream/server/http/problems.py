"""Errors as JSON problem details (RFC 9457), or as a page for a person's browser: what is wrong, and what to do."""

from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from typing import Final

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response

from namesrv_stream.client.mqadmin_tables import printable

MEDIA_TYPE: Final = "application/problem+json"
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: name server console</title>
<link rel="stylesheet" href="/console/static/console.css">
</head>
<body>
<main class="wide problem">
<h1>{title}</h1>
<p class="missing">{detail}</p>
<p><a href="/">Open the console</a></p>
</main>
</body>
</html>
"""
_PAGE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Vary": "Accept",
}

#: Kinds of problems that a program should tell apart by more than their status.
POSITION_GONE = "urn:namesrv-stream:problem:position-gone"
TRY_AGAIN = "urn:namesrv-stream:problem:try-again"


class Problem(Exception):
    """A request that cannot be answered.

    Attributes:
        status: Of HTTP.
        detail: For people: what is wrong with this request, and what to do.
        kind: "about:blank" where the status says it all.
        headers: Of the answer.
    """

    def __init__(
        self, status: int, detail: str, *, kind: str = "about:blank", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.headers = headers

    def response(self, headers: Headers | None = None) -> Response:
        """The answer to a request with these headers: a page where they ask for one, as browsers do."""
        if headers is not None and _wants_page(headers.get("accept", "")):
            title = f"{self.status} {HTTPStatus(self.status).phrase}"
            page = _PAGE.format(title=title, detail=escape(printable(self.detail)))
            return Response(page, self.status, {**(self.headers or {}), **_PAGE_HEADERS}, "text/html")
        body = {
            "type": self.kind,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return Response(orjson.dumps(body), self.status, {**(self.headers or {}), "Vary": "Accept"}, MEDIA_TYPE)


def _wants_page(accept: str) -> bool:
    """The console's own script asks for HTML, too, and for problem details where there is a problem."""
    return "text/html" in accept and "json" not in accept
