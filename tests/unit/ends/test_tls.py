"""The TLS context of the clients."""

import ssl

from shared.ends.namespace import tls


def test_the_authorities_are_read_once_and_servers_are_verified() -> None:
    context = tls()
    assert context is tls()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509_ca"] > 50
