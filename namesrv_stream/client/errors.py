"""What can go wrong between a client and its name servers.

::

    NamesrvStreamError
    ├── ConnectionLost                 the connection could not be made, or ended: another server may be asked
    ├── RequestTimedOut                no answer in time: likewise
    ├── UnexpectedAnswer               the server answered with an error of its own: asking another is no remedy
    └── PrerequisiteMissing
        └── NameServersUnreachable     none of them answered: exit 3
"""

from collections.abc import Mapping

from namesrv_stream.errors import NamesrvStreamError, PrerequisiteMissing


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


class UnexpectedAnswer(NamesrvStreamError):
    """The server answered, and not with what was asked for.

    Attributes:
        request_code: The request's code.
        code: The response code; 0 if the answer's body was the trouble.
        remark: The server's words, or what is wrong with the body.
    """

    def __init__(self, request_code: int, code: int, remark: str) -> None:
        super().__init__(f"request {request_code} was answered with code {code}: {remark}")
        self.request_code = request_code
        self.code = code
        self.remark = remark


class NameServersUnreachable(PrerequisiteMissing):
    """No name server answered.

    Attributes:
        reasons: Address to what happened there.
    """

    retriable = True

    def __init__(self, reasons: Mapping[str, str]) -> None:
        told = "; ".join(f"{addr} ({reason})" for addr, reason in reasons.items())
        super().__init__(f"no name server answers at {told}", "start it, or correct -n or NAMESRV_ADDR")
        self.reasons = dict(reasons)
