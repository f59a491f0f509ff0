"""TLS of outgoing HTTP connections."""

import ssl
from functools import cache

import httpx


@cache
def outgoing_tls(*, trust_env: bool = True) -> ssl.SSLContext:
    """Return the context for httpx clients: reading the certificates of the authorities takes 55 ms.

    trust_env: whether ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` may name other authorities.
    """
    return httpx.create_ssl_context(trust_env=trust_env)
