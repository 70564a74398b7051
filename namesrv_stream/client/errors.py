"""What can go wrong between a client and its name servers.

::

    NamesrvStreamError
    ├── ConnectionLost                 the connection could not be made, or ended: another server may be asked
    ├── RequestTimedOut                no answer in time: likewise
    ├── RequestTooLarge                no frame can hold the request: no server has got it
    ├── ClientClosed                   asked after ``close``, or before ``start``
    ├── UnexpectedAnswer               the server answered with an error of its own: asking another is no remedy
    ├── NotOnAllServers                an operator's change was made at some name servers and not at others
    ├── NoQueue                        the topic has a route, and no queue in it that can be written
    └── PrerequisiteMissing
        ├── NameServersUnreachable     none of them answered: exit 3
        └── AddressServerUnreachable   the HTTP server that knows the name servers gave no list: exit 3
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from namesrv_stream.errors import NamesrvStreamError, PrerequisiteMissing
from namesrv_stream.logs import safe
from namesrv_stream.remoting.codes import RequestCode, ResponseCode


class ConnectionLost(NamesrvStreamError):
    """There is no connection, or it ended before the answer came.

    Attributes:
        addr: The peer, ``host:port``.
        reason: Why.
    """

    retriable = True

    def __init__(self, addr: str, reason: str) -> None:
        super().__init__(f"{addr}: {reason}")
        self.addr = addr
        self.reason = reason


class RequestTimedOut(NamesrvStreamError):
    """The peer did not answer in time.

    Attributes:
        addr: The peer, ``host:port``.
        request_code: The request's code.
        timeout_ms: How long was waited, milliseconds.
        reason: The text without the address.
    """

    retriable = True

    def __init__(self, addr: str, request_code: int, timeout_ms: int) -> None:
        self.reason = f"no answer to request {request_code} within {timeout_ms} ms"
        super().__init__(f"{addr}: {self.reason}")
        self.addr = addr
        self.request_code = request_code
        self.timeout_ms = timeout_ms


class RequestTooLarge(NamesrvStreamError):
    """A request has a name or a value that no frame can hold; nothing was sent.

    Attributes:
        request_code: The request's code.
    """

    def __init__(self, request_code: int, reason: str) -> None:
        super().__init__(f"{_name(RequestCode, request_code)} cannot be sent: {reason}")
        self.request_code = request_code


class ClientClosed(NamesrvStreamError):
    """The client was closed before or while it was asked, or never started."""

    def __init__(self) -> None:
        super().__init__("the client is closed, or not started")


class UnexpectedAnswer(NamesrvStreamError):
    """The server answered, and not with what was asked for.

    Attributes:
        request_code: The request's code.
        code: The response code; 0 if the answer's body was the trouble.
        remark: The server's words, or what is wrong with the body.
    """

    def __init__(self, request_code: int, code: int, remark: str) -> None:
        told = f"answered {_name(ResponseCode, code)}" if code else "answered what cannot be read"
        super().__init__(f"{_name(RequestCode, request_code)} was {told}: {safe(remark)}")
        self.request_code = request_code
        self.code = code
        self.remark = remark


class NotOnAllServers(NamesrvStreamError):
    """A change was made at some name servers only; the same request again does no harm.

    Attributes:
        done: Addresses where it was made.
        reasons: Address to why not, of the others.
    """

    def __init__(self, done: Iterable[str], reasons: Mapping[str, str]) -> None:
        self.done = tuple(done)
        self.reasons = dict(reasons)
        told = "; ".join(f"{addr} ({reason})" for addr, reason in reasons.items())
        count = f"{len(self.reasons)} of {len(self.done) + len(self.reasons)}"
        super().__init__(f"not changed at {count} name servers: {told}")


class NoQueue(NamesrvStreamError):
    """No broker of the topic takes messages: none may be written to, or none has a master.

    Attributes:
        topic: The topic.
    """

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"no queue of topic {safe(topic)} can be written: no broker with a master and write permission"
        )
        self.topic = topic


class NameServersUnreachable(PrerequisiteMissing):
    """No name server answered.

    Attributes:
        reasons: Address to what happened there.
    """

    retriable = True

    def __init__(self, reasons: Mapping[str, str]) -> None:
        told = "; ".join(f"{addr} ({reason})" for addr, reason in reasons.items())
        super().__init__(
            f"no name server answers at {told}", "start it, or name another one: -n, --data-dir or NAMESRV_ADDR"
        )
        self.reasons = dict(reasons)


class AddressServerUnreachable(PrerequisiteMissing):
    """The HTTP server that knows the name servers gave no list of them.

    Attributes:
        url: Its address.
        reason: Why.
    """

    retriable = True

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"no list of name servers at {url} ({reason})", "start the address server, or correct -n")
        self.url = url
        self.reason = reason


def _name(codes: type[IntEnum], code: int) -> str:
    try:
        return f"{codes(code).name} ({code})"
    except ValueError:
        return f"code {code}"
