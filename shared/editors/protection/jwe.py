"""
JSON Web Encryption: content that only the holder of a key can read, and nobody can alter.

1. Each content has its own key, which the named key wraps (envelope encryption), except with `dir`.
2. The algorithm is the `alg` of the key, or that of its kind: A256KW (or `dir`) for oct, RSA-OAEP-256 for RSA,
   ECDH-ES+A256KW for EC and OKP. Content with another algorithm is rejected. So is compressed content (`zip`), which
   may be a bomb, and content with a password (`p2c`), which may take very long.
3. The compact and the JSON serialization are read and written; of several recipients, the first with a known key is
   used.

Source: RFC 7516, RFC 7518, RFC 8725 (as far as it is about algorithms).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from cryptography.exceptions import InvalidKey, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, GuestProtocol, Key, OctKey, OKPKey, RSAKey

from shared.codecs.json import Json, read
from shared.editors.protection.keys import KeyRing
from shared.errors import MessageRejected, TargetRefused

type Header = dict[str, Any]

COMPACT_TYPE = "application/jose"
JSON_TYPE = "application/jose+json"

BOUND = "bound"
BOUND_DIGEST = "bound_digest"
PATH = "path"
AMQP_BODY = "amqp_body"

_PARTS = ("protected", "encrypted_key", "iv", "ciphertext", "tag")
# The first one of a kind is used to encrypt.
_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    OctKey.key_type: ("A256KW", "dir"),
    RSAKey.key_type: ("RSA-OAEP-256",),
    ECKey.key_type: ("ECDH-ES+A256KW",),
    OKPKey.key_type: ("ECDH-ES+A256KW",),
}
# A key whose `alg` is one of these may be used with it.
_ON_REQUEST = ("A128KW", "A192KW", "RSA-OAEP", "ECDH-ES", "ECDH-ES+A128KW")
_CONTENT_ALGORITHMS = ("A256GCM", "A128GCM", "A192GCM", "A128CBC-HS256", "A192CBC-HS384", "A256CBC-HS512")
_LARGEST_CONTENT = 200_000_000
_LARGEST_HEADER = 8192
_CURVES = ("X25519", "X448")

_FAULTS = (
    *(JoseError, InvalidTag, InvalidUnwrap, InvalidKey, UnsupportedAlgorithm),
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, RecursionError),
)


def _registry() -> jwe.JWERegistry:
    known = frozenset(algorithm for each in _ALGORITHMS.values() for algorithm in each)
    registry = jwe.JWERegistry(algorithms=known.union(_ON_REQUEST, _CONTENT_ALGORITHMS), strict_check_header=False)
    # Headers are checked here; with an empty registry, every critical header (`crit`) is an error.
    registry.header_registry = {}
    # The limits of the library are meant for tokens.
    registry.max_ciphertext_length = _LARGEST_CONTENT
    registry.max_protected_header_length = _LARGEST_HEADER
    return registry


_REGISTRY = _registry()


class SealingKey:
    """A key to encrypt with, which was tested."""

    def __init__(self, ring: KeyRing, kid: str | None, algorithm: str | None, encryption: str) -> None:
        """
        Use the key with id *kid*, by default the newest, with *algorithm*, by default its own.

        Raises TargetRefused if the key is not for it.
        """
        key = ring.chosen(kid)
        where = f"secret {ring.secret}: key {key.kid}"
        usable = algorithms_of(key)
        chosen = algorithm or (usable[0] if usable else None)
        if chosen not in usable:
            problem = f"is for {' or '.join(usable)}" if usable else "is not for encryption"
            raise TargetRefused(f"{where} {problem}, expected one for {algorithm or 'encryption'}")
        self._key = key
        self._header: Header = {"alg": chosen, "enc": encryption, "kid": key.kid}
        try:
            self.seal(b"", {})
        except MessageRejected:
            problem = f"{where} cannot encrypt with {chosen} and {encryption}, by its size or its use"
            raise TargetRefused(problem) from None

    def seal(self, content: bytes, header: Header) -> str:
        """Return a compact serialization of *content*, with *header* in addition to the fields of the key."""
        try:
            return jwe.encrypt_compact({**self._header, **header}, content, self._key, registry=_REGISTRY)
        except _FAULTS:
            raise MessageRejected("NotEncryptable", "the content cannot be encrypted") from None


def algorithms_of(key: Key) -> tuple[str, ...]:
    """Return the algorithms of *key*, none if it is not for encryption."""
    if key.get("use", "enc") != "enc" or (key.key_type == OKPKey.key_type and key.get("crv") not in _CURVES):
        return ()
    usual = _ALGORITHMS[key.key_type]
    if key.alg is None:
        return usual
    return (key.alg,) if key.alg in (*usual, *_ON_REQUEST) else ()


def unseal(content: bytes, ring: KeyRing) -> tuple[Header, bytes]:
    """
    Return the protected header and the decrypted content of either serialization.

    Raises UnknownKey, and MessageRejected if *content* is not a JWE, or no key of the ring can open it.
    """
    try:
        if content[:1] == b"{":
            return _unseal_json(content, ring)
        opened = jwe.decrypt_compact(content, _finder(ring), registry=_REGISTRY)
    except _FAULTS:
        # One error for all causes: the cause would help an attacker.
        raise MessageRejected("NotDecrypted", f"is not a JWE that a key of secret {ring.secret} can open") from None
    return opened.protected, opened.plaintext or b""


def to_json(compact: str) -> bytes:
    """Return the flattened JSON serialization of a compact one."""
    parts = zip(_PARTS, compact.split("."), strict=True)
    return json.dumps({name: part for name, part in parts if part}, separators=(",", ":")).encode()


def _unseal_json(content: bytes, ring: KeyRing) -> tuple[Header, bytes]:
    document = read(content)
    if not isinstance(document, dict):
        raise TypeError
    if "recipients" in document:
        document = _for_one(document, ring)
    if not {"aad", "header", "unprotected"} & set(document):
        # With only a protected header, this is equal to the compact serialization, which keeps the bytes of the header.
        compact = ".".join([str(document.get(name, "")) for name in _PARTS]).encode()
        opened = jwe.decrypt_compact(compact, _finder(ring), registry=_REGISTRY)
        return opened.protected, opened.plaintext or b""
    flattened = cast("jwe.FlattenedJSONSerialization", document)
    result = jwe.decrypt_json(flattened, _finder(ring), registry=_REGISTRY)
    return result.protected, result.plaintext or b""


def _for_one(document: dict[str, Json], ring: KeyRing) -> dict[str, Json]:
    """Return the flattened serialization for the first recipient with a known key."""
    rest = {name: value for name, value in document.items() if name != "recipients"}
    recipients = document["recipients"]
    unknown: MessageRejected | None = None
    for recipient in recipients if isinstance(recipients, list) else ():
        header = recipient.get("header") if isinstance(recipient, dict) else None
        kid = header.get("kid") if isinstance(header, dict) else None
        try:
            ring.key(kid if isinstance(kid, str) else None)
        except MessageRejected as error:
            unknown = error
        else:
            return {**rest, **cast("dict[str, Json]", recipient)}
    if unknown is None:
        raise TypeError
    raise unknown


def _finder(ring: KeyRing) -> Callable[[GuestProtocol], Key]:
    """Return a function that finds the key for a recipient; it raises MessageRejected for another algorithm."""

    def find(recipient: GuestProtocol) -> Key:
        header = recipient.headers()
        if "zip" in header:
            raise MessageRejected("NotDecrypted", "the content is compressed (zip), expected uncompressed content")
        key = ring.key(header.get("kid"))
        if header.get("alg") not in algorithms_of(key):
            raise MessageRejected("NotDecrypted", f"names an algorithm that key {key.kid} is not for")
        return key

    return find
