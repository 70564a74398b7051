"""Errors between a client and its name servers.

::

    NamesrvStreamError
    ├── ConnectionLost                 the connection could not be opened, or ended: another server may answer
    ├── RequestTimedOut                no answer in time: another server may answer
    ├── RequestTooLarge                the request does not fit into a frame: it was not sent
    ├── ClientClosed                   used after ``close``, or before ``start``
    ├── UnexpectedAnswer               the server answered with an error: another server would do the same
    ├── NotOnAllServers                an operator's change was made at some name servers only
    ├── NoQueue                        the route of the topic has no writable queue
    └── PrerequisiteMissing
        ├── NameServersUnreachable     no name server answered: exit code 3
        └── AddressServerUnreachable   the HTTP server with the list of name servers returned none: exit code 3
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from namesrv_stream.errors import NamesrvStreamError, PrerequisiteMissing
from namesrv_stream.logs import safe
from namesrv_stream.remoting.command import RequestCode, ResponseCode


class ConnectionLost(NamesrvStreamError):
    """There is no connection, or it ended before the answer came.

    Attributes:
        reason: The message of the error without the address.
    """

    def __init__(self, addr: str, reason: str) -> None:
        super().__init__(f"{addr}: {reason}")
        self.reason = reason


class RequestTimedOut(NamesrvStreamError):
    """The peer did not answer in time.

    Attributes:
        reason: The message of the error without the address.
    """

    def __init__(self, addr: str, request_code: int, timeout_ms: int) -> None:
        self.reason = f"no answer to request {request_code} within {timeout_ms} ms"
        super().__init__(f"{addr}: {self.reason}")


class RequestTooLarge(NamesrvStreamError):
    """A name or a value of a request does not fit into a frame; nothing was sent."""

    def __init__(self, request_code: int, reason: str) -> None:
        super().__init__(f"{_name(RequestCode, request_code)} cannot be sent: {reason}")


class ClientClosed(NamesrvStreamError):
    """The client was closed before or during the call, or never started."""

    def __init__(self) -> None:
        super().__init__("the client is closed, or not started")


class UnexpectedAnswer(NamesrvStreamError):
    """The server answered with an error, or with something other than requested.

    Attributes:
        request_code: The request's code.
        code: The response code; 0 if the body of the answer is wrong.
        remark: The server's remark, or what is wrong with the body.
    """

    def __init__(self, request_code: int, code: int, remark: str) -> None:
        outcome = f"answered {_name(ResponseCode, code)}" if code else "answered unreadably"
        super().__init__(f"{_name(RequestCode, request_code)} was {outcome}: {safe(remark)}")
        self.request_code = request_code
        self.code = code
        self.remark = remark


class NotOnAllServers(NamesrvStreamError):
    """A change was made at some name servers only; the same request can be repeated.

    Attributes:
        done: Addresses where it was made.
        reasons: Address → reason, for the other servers.
    """

    def __init__(self, done: Iterable[str], reasons: Mapping[str, str]) -> None:
        self.done = tuple(done)
        self.reasons = dict(reasons)
        failures = "; ".join(f"{addr} ({reason})" for addr, reason in reasons.items())
        count = f"{len(self.reasons)} of {len(self.done) + len(self.reasons)}"
        super().__init__(f"not changed at {count} name servers: {failures}")


class NoQueue(NamesrvStreamError):
    """No broker of the topic accepts messages: none has both write permission and a master."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {safe(topic)} has no writable queue: no broker with a master and write permission")


class NameServersUnreachable(PrerequisiteMissing):
    """No name server answered.

    Attributes:
        reasons: Address → reason.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        failures = "; ".join(f"{addr} ({reason})" for addr, reason in reasons.items())
        super().__init__(
            f"no name server answers at {failures}", "start one, or name others with -n, --data-dir or NAMESRV_ADDR"
        )
        self.reasons = dict(reasons)


class AddressServerUnreachable(PrerequisiteMissing):
    """The HTTP server with the list of name servers returned no list."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no list of name servers at {url} ({reason})", "start the address server, or correct -n")


def _name(codes: type[IntEnum], code: int) -> str:
    try:
        return f"{codes(code).name} ({code})"
    except ValueError:
        return f"code {code}"
