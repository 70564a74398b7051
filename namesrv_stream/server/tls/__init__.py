"""TLS of both ports: the certificate in use, its replacement while all goes on, and the records of one connection.

And TLS of the connections that a server opens itself.
"""

from namesrv_stream.server.tls.certificate import Certificate, calls_context, read_certificate
from namesrv_stream.server.tls.server_tls import ServerTls
from namesrv_stream.server.tls.transport import TlsTransport

__all__ = ["Certificate", "ServerTls", "TlsTransport", "calls_context", "read_certificate"]
