"""
JSON Web Encryption: content that only the holder of a key reads and nobody alters.

1. Every content has a key of its own, which the named key wraps (envelope encryption); `dir` alone does without.
2. What a key is for its `alg` says, or else its kind: A256KW (or `dir`) for oct, RSA-OAEP-256 for RSA, ECDH-ES+A256KW
   for EC and OKP. Content that names another algorithm is refused, and so is compressed content (`zip`), which may be a
   bomb, and what is derived from a password (`p2c`), which may take for ever.
3. The compact serialization is read and written, and the JSON serialization; of several recipients the first whose key
   is there is taken.

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
# The first of a kind is what is encrypted with.
_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    OctKey.key_type: ("A256KW", "dir"),
    RSAKey.key_type: ("RSA-OAEP-256",),
    ECKey.key_type: ("ECDH-ES+A256KW",),
    OKPKey.key_type: ("ECDH-ES+A256KW",),
}
# A key that is made for one of these may be used with it.
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
    known = {algorithm for each in _ALGORITHMS.values() for algorithm in each}
    registry = jwe.JWERegistry(
        algorithms=frozenset((*known, *_ON_REQUEST, *_CONTENT_ALGORITHMS)), strict_check_header=False
    )
    # What is used of a header is looked at here; to know none makes all that is critical (`crit`) a fault.
    registry.header_registry = {}
    # The library's limits are those of tokens.
    registry.max_ciphertext_length = _LARGEST_CONTENT
    registry.max_protected_header_length = _LARGEST_HEADER
    return registry


_REGISTRY = _registry()


class SealingKey:
    """A key to encrypt with, known to be fit for that."""

    def __init__(self, secret: str, key: Key, algorithm: str | None, encryption: str) -> None:
        """Use *algorithm*, unless None that which the key is for; raises TargetRefused where it is not for that."""
        where = f"secret {secret}: key {key.kid}"
        usable = algorithms_of(key)
        chosen = algorithm or (usable[0] if usable else None)
        if chosen not in usable:
            told = f"is for {' or '.join(usable)}" if usable else "is not for encryption"
            raise TargetRefused(f"{where} {told}, expected one for {algorithm or 'encryption'}")
        self._key = key
        self._header: Header = {"alg": chosen, "enc": encryption, "kid": key.kid}
        try:
            self.seal(b"", {})
        except MessageRejected:
            raise TargetRefused(
                f"{where} cannot encrypt with {chosen} and {encryption}, by its size or its use"
            ) from None

    def seal(self, content: bytes, header: Header) -> str:
        """Return *content* encrypted, in the compact serialization, with *header* beside what the key needs."""
        try:
            return jwe.encrypt_compact({**self._header, **header}, content, self._key, registry=_REGISTRY)
        except _FAULTS:
            raise MessageRejected("NotEncryptable", "the content cannot be encrypted") from None


def algorithms_of(key: Key) -> tuple[str, ...]:
    """Return the algorithms that *key* may be used with, none for a key that is not for encryption."""
    if key.get("use", "enc") != "enc" or (key.key_type == OKPKey.key_type and key.get("crv") not in _CURVES):
        return ()
    usual = _ALGORITHMS[key.key_type]
    if key.alg is None:
        return usual
    return (key.alg,) if key.alg in (*usual, *_ON_REQUEST) else ()


def unsealed(content: bytes, ring: KeyRing) -> tuple[Header, bytes]:
    """
    Return the protected header and the plain content of either serialization.

    Raises UnknownKey, and MessageRejected where it is no encryption, or not one that a key of the ring opens.
    """
    try:
        if content[:1] == b"{":
            return _unsealed_json(content, ring)
        opened = jwe.decrypt_compact(content, _finder(ring), registry=_REGISTRY)
    except _FAULTS:
        # One answer for all that can be wrong: which it is would tell an attacker how near he is.
        raise MessageRejected("NotDecrypted", f"is not a JWE that a key of secret {ring.secret} can open") from None
    return opened.protected, opened.plaintext or b""


def in_json(compact: str) -> bytes:
    """Return the flattened JSON serialization of what a compact one says."""
    parts = zip(_PARTS, compact.split("."), strict=True)
    return json.dumps({name: part for name, part in parts if part}, separators=(",", ":")).encode()


def _unsealed_json(content: bytes, ring: KeyRing) -> tuple[Header, bytes]:
    document = read(content)
    if not isinstance(document, dict):
        raise TypeError
    if "recipients" in document:
        document = _for_one(document, ring)
    if not {"aad", "header", "unprotected"} & set(document):
        # All of it is in the protected header: the same as the compact serialization, which keeps the header's bytes.
        compact = ".".join([str(document.get(name, "")) for name in _PARTS]).encode()
        opened = jwe.decrypt_compact(compact, _finder(ring), registry=_REGISTRY)
        return opened.protected, opened.plaintext or b""
    flattened = cast("jwe.FlattenedJSONSerialization", document)
    result = jwe.decrypt_json(flattened, _finder(ring), registry=_REGISTRY)
    return result.protected, result.plaintext or b""


def _for_one(document: dict[str, Json], ring: KeyRing) -> dict[str, Json]:
    """Return the flattened serialization for the first recipient whose key is there."""
    rest = {name: value for name, value in document.items() if name != "recipients"}
    recipients = document["recipients"]
    unknown: MessageRejected | None = None
    for each in recipients if isinstance(recipients, list) else ():
        header = each.get("header") if isinstance(each, dict) else None
        kid = header.get("kid") if isinstance(header, dict) else None
        try:
            ring.key(kid if isinstance(kid, str) else None)
        except MessageRejected as error:
            unknown = error
        else:
            return {**rest, **cast("dict[str, Json]", each)}
    if unknown is None:
        raise TypeError
    raise unknown


def _finder(ring: KeyRing) -> Callable[[GuestProtocol], Key]:
    """Return what finds the key for a recipient, and refuses what the key is not for."""

    def find(recipient: GuestProtocol) -> Key:
        header = recipient.headers()
        if "zip" in header:
            raise MessageRejected("NotDecrypted", "the content is compressed (zip), expected uncompressed content")
        key = ring.key(header.get("kid"))
        if header.get("alg") not in algorithms_of(key):
            raise MessageRejected("NotDecrypted", f"names an algorithm that key {key.kid} is not for")
        return key

    return find
