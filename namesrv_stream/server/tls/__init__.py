"""TLS of both ports, and of the connections that a server opens: certificates, their reload, and TLS records.

It contains no protocol above TLS. ``server`` imports it, and so does ``up``, to check the files before a start.
"""

from namesrv_stream.server.tls.certificate import Certificate, calls_context, read_certificate
from namesrv_stream.server.tls.server_tls import ServerTls
from namesrv_stream.server.tls.transport import TlsTransport

__all__ = ["Certificate", "ServerTls", "TlsTransport", "calls_context", "read_certificate"]
