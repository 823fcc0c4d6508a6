"""
A certificate for https on this machine.

A new authority signs one certificate for the loopback names, and its key is discarded: a client that trusts the
authority trusts that one certificate only. To trust `busway-ca.pem`:

- Python: `ServiceBusAdministrationClient.from_connection_string(..., connection_verify="FOLDER/busway-ca.pem")`
- Node: NODE_EXTRA_CA_CERTS=FOLDER/busway-ca.pem in the environment
"""

import fcntl
import ipaddress
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.errors import ConfigError, Problem

AUTHORITY_FILE = "busway-ca.pem"
SERVER_FILE = "busway-server.pem"

_VALID = timedelta(days=365)
_RENEWED_BEFORE = timedelta(days=7)
_NAMES = ("localhost",)
_ADDRESSES = ("127.0.0.1", "::1")


def server_context(folder: Path) -> ssl.SSLContext:
    """
    Return a context for https with the certificate in *folder*; a missing or expiring one is created.

    Raises: ConfigError if the folder cannot be written or its certificate cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if not _lasts(folder):
                _make(folder)
            context.load_cert_chain(folder / SERVER_FILE)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(
            [Problem(str(folder), f"has no usable certificate: {reason}", "choose another folder")]
        ) from error
    return context


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let brokers that start at the same time create one certificate; the lock ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lasts(folder: Path) -> bool:
    """Return whether there is a certificate that its authority has signed and that does not end soon."""
    server, authority = folder / SERVER_FILE, folder / AUTHORITY_FILE
    if not server.exists():
        return False
    certificate = x509.load_pem_x509_certificate(server.read_bytes())
    if not authority.exists():
        return False
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.read_bytes()))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return certificate.not_valid_after_utc > datetime.now(UTC) + _RENEWED_BEFORE


def _make(folder: Path) -> None:
    now = datetime.now(UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("Busway local broker")
    authority = _builder(authority_name, authority_name, authority_key, authority_key, now, is_authority=True)
    alternatives = [
        *map(x509.DNSName, _NAMES),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES),
    ]
    server = (
        _builder(_name("localhost"), authority_name, server_key, authority_key, now, is_authority=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(folder / SERVER_FILE, server.public_bytes(serialization.Encoding.PEM) + private, 0o600)
    _write(
        folder / AUTHORITY_FILE,
        authority.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        0o644,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    now: datetime,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
    own, signing = key.public_key(), issuer_key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(own)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(own), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing), critical=False)
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically, with its mode from the start."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    partial.replace(path)
