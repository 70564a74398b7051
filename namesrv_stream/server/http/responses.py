"""Answers that all pages share: problems as JSON (RFC 9457) or as HTML, and conditional answers with an ETag."""

from collections.abc import Mapping
from hashlib import blake2b
from html import escape
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from namesrv_stream.client.commands.answer_text import printable
from namesrv_stream.server.http.answers import ProblemDetails

PROBLEM_JSON: Final = "application/problem+json"
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

#: Kinds of problems that a program cannot distinguish by their status alone.
POSITION_GONE = "urn:namesrv-stream:problem:position-gone"
TRY_AGAIN = "urn:namesrv-stream:problem:try-again"


class Problem(Exception):
    """A request that cannot be answered.

    Attributes:
        status: HTTP status.
        detail: Text for people: what is wrong with this request, and what to do.
        kind: URI of the kind of problem; "about:blank" if the status is sufficient.
        headers: Additional headers of the answer.
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
        """Return the answer to a request with these headers: HTML if they accept it, as browsers do; otherwise JSON."""
        if headers is not None and _wants_page(headers.get("accept", "")):
            title = f"{self.status} {HTTPStatus(self.status).phrase}"
            page = _PAGE.format(title=title, detail=escape(printable(self.detail)))
            return Response(page, self.status, {**(self.headers or {}), **_PAGE_HEADERS}, "text/html")
        title = HTTPStatus(self.status).phrase
        body = ProblemDetails(type=self.kind, title=title, status=self.status, detail=self.detail).model_dump_json()
        return Response(body, self.status, {**(self.headers or {}), "Vary": "Accept"}, PROBLEM_JSON)


def conditional(request: Request, body: bytes, media_type: str = "application/json") -> Response:
    """Return the body with an ETag, or 304 if the client already has it (RFC 9110 §8.8.3, §13.1.2)."""
    tag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}  # clients must revalidate every time
    known = [item.strip().removeprefix("W/") for item in request.headers.get("if-none-match", "").split(",")]
    if tag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=media_type)


def _wants_page(accept: str) -> bool:
    """Return whether a problem becomes a page. The console's script accepts HTML too, but wants problems as JSON."""
    return "text/html" in accept and "json" not in accept
