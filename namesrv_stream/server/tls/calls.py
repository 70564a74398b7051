"""TLS of the connections that a server opens to brokers."""

import ssl

from namesrv_stream.server.tls.certificate import CALLS, ChainFiles, load_chain, trust
from namesrv_stream.settings import TlsSettings


def calls_context(tls: TlsSettings) -> ssl.SSLContext:
    """For connections to brokers, by what the files hold now; blocks.

    Nobody looks at the name in a broker's certificate, as in RocketMQ: brokers register addresses of their choice.

    Raises:
        ConfigError: A file cannot be used; names it and the setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if tls.calls_trust_file:
        trust(context, tls.calls_trust_file, f"{CALLS}trust_file")
    else:
        context.verify_mode = ssl.CERT_NONE  # rocketmq 5.3.3, TlsHelper: tls.client.authServer=false
    if tls.calls_cert_file:
        files = (tls.calls_cert_file, tls.calls_key_file, tls.calls_key_password_file)
        load_chain(context, ChainFiles(*files, section=CALLS))
    return context
