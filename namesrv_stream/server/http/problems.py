"""Errors as JSON problem details (RFC 9457): what is wrong, and what to do about it."""

from collections.abc import Mapping
from http import HTTPStatus

import orjson
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"

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

    def response(self) -> Response:
        body = {
            "type": self.kind,
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        return Response(orjson.dumps(body), self.status, self.headers, MEDIA_TYPE)
