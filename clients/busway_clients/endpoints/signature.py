"""
Signed endpoint documents: a JSON Web Signature in flattened JSON form, with Ed25519.

    {"payload": BASE64URL(document), "protected": BASE64URL({"alg": "EdDSA", "kid": "2026"}), "signature": BASE64URL(…)}

Document and signature are one file, so that neither is read without the other, and the signed bytes are the bytes that
are parsed. The document cannot choose the algorithm. Source: RFC 7515, 7.2.2; RFC 8037, 3.1.
"""

import base64
import binascii
import json
from collections.abc import Mapping

from busway_clients.endpoints.document import json_object
from busway_clients.endpoints.endpoint import EndpointUnresolved
from busway_clients.errors import extra

_ALGORITHM = "EdDSA"
_MEMBERS = {"payload", "protected", "signature"}


def is_signed(content: bytes, where: str) -> bool:
    """Return whether *content* has a signature; raises EndpointUnresolved unless it is a JSON object."""
    return "payload" in json_object(content, where)


def verify(content: bytes, public_keys: Mapping[str, bytes], where: str) -> bytes:
    """
    Return the document in *content* after its signature is verified.

    Shape:   public_keys are PEM by the id that the signature names, so that keys can be rotated.
    Raises:  EndpointUnresolved if it is not signed by one of the keys.
    """
    signed = json_object(content, where)
    if not signed.keys() >= _MEMBERS:
        raise EndpointUnresolved(f"{where}: is not signed, expected a signature by {', '.join(sorted(public_keys))}")
    if unknown := sorted(signed.keys() - _MEMBERS):
        raise EndpointUnresolved(f"{where}: has {unknown[0]!r} beside its signature, expected nothing unsigned")
    header = json_object(_decoded(signed["protected"], where), f"{where}: protected")
    if header.get("alg") != _ALGORITHM or "crit" in header:
        raise EndpointUnresolved(f"{where}: is signed with {header.get('alg')!r}, expected {_ALGORITHM} and no crit")
    key = header.get("kid")
    if not isinstance(key, str) or key not in public_keys:
        raise EndpointUnresolved(f"{where}: is signed by {key!r}, expected {', '.join(sorted(public_keys))}")
    # Import lazily: only signed documents need the package.
    with extra("signatures"):
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415

    public_key = load_pem_public_key(public_keys[key])
    if not isinstance(public_key, Ed25519PublicKey):
        raise EndpointUnresolved(f"{where}: the public key {key!r} is of another kind, expected Ed25519")
    payload = _decoded(signed["payload"], where)
    try:
        public_key.verify(_decoded(signed["signature"], where), f"{signed['protected']}.{signed['payload']}".encode())
    except InvalidSignature as error:
        raise EndpointUnresolved(f"{where}: the signature by {key!r} is wrong; the document was changed") from error
    return payload


def sign(document: bytes, private_key: bytes, key: str) -> bytes:
    """Return *document* signed with a private key in PEM; readers find its public key by the id *key*."""
    with extra("signatures"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    signing = load_pem_private_key(private_key, None)
    if not isinstance(signing, Ed25519PrivateKey):
        raise TypeError(f"the private key {key!r} is of another kind, expected Ed25519")
    protected = _encoded(json.dumps({"alg": _ALGORITHM, "kid": key}).encode())
    payload = _encoded(document)
    signature = _encoded(signing.sign(f"{protected}.{payload}".encode()))
    members = {"payload": payload, "protected": protected, "signature": signature}
    return (json.dumps(members, indent=2) + "\n").encode()


def public_key_of(private_key: bytes) -> bytes:
    """Return the public key in PEM of a private key in PEM."""
    with extra("signatures"):
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            Encoding,
            PublicFormat,
            load_pem_private_key,
        )

    public_key = load_pem_private_key(private_key, None).public_key()
    return public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _decoded(text: object, where: str) -> bytes:
    try:
        found = base64.b64decode(f"{text}{'=' * (-len(str(text)) % 4)}", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise EndpointUnresolved(f"{where}: the signed document is invalid, expected base64url") from error
    # Only one spelling: Python also takes the other alphabet, and bits that no byte has.
    if not isinstance(text, str) or _encoded(found) != text:
        raise EndpointUnresolved(f"{where}: the signed document is invalid, expected base64url")
    return found
