"""Encryption and decryption of one message's body, or of fields of it."""

import json
from collections.abc import Sequence

from shared.amqp import sections
from shared.amqp.values import Malformed
from shared.codecs.json import read
from shared.editors.content.body import content_of, put_content
from shared.editors.content.json_fields import Fields
from shared.editors.protection.bound_properties import covers, digest, listed
from shared.editors.protection.jwe import (
    AMQP_BODY,
    BOUND,
    BOUND_DIGEST,
    COMPACT_TYPE,
    JSON_TYPE,
    PATH,
    Header,
    SealingKey,
    to_json,
    unseal,
)
from shared.editors.protection.keys import KeyRing
from shared.errors import MessageRejected
from shared.message.message import Message

_TYPE = "cty"


def seal_body(message: Message, key: SealingKey, bound: Sequence[str], *, as_json: bool) -> None:
    """
    Encrypt the body, of any kind.

    The content type is kept in the header (`cty`). Bound properties have their values from before the encryption.
    """
    content, is_encoded = _plain(message)
    header = _binding(message, bound)
    if is_encoded:
        header[AMQP_BODY] = True
    if message.content_type is not None:
        header[_TYPE] = message.content_type
    compact = key.seal(content, header)
    message.body = to_json(compact) if as_json else compact.encode()
    message.content_type = JSON_TYPE if as_json else COMPACT_TYPE


def open_body(message: Message, ring: KeyRing, bound: Sequence[str]) -> None:
    """
    Decrypt the body and restore its content type; raises UnknownKey, or MessageRejected.

    A field has a path, and a body has none, as with other software.
    """
    header, content = unseal(content_of(message), ring)
    if PATH in header:
        raise MessageRejected("BoundElsewhere", "the content was encrypted as a field, expected an encrypted body")
    if header.get(AMQP_BODY) is True:
        message.sections.body = _encoded_body(content)
    else:
        message.body = content
    content_type = header.get(_TYPE)
    if content_type is not None and not isinstance(content_type, str):
        raise MessageRejected("NotDecrypted", "the content has a content type that is not text")
    message.content_type = content_type
    _check_binding(message, header, bound)


def seal_fields(message: Message, key: SealingKey, fields: Fields, bound: Sequence[str]) -> None:
    """Encrypt fields of a JSON body: each becomes a string."""
    header = _binding(message, bound)

    def seal(text: str, path: str) -> str:
        return f'"{key.seal(text.encode(), {**header, PATH: path})}"'

    put_content(message, fields.replace(content_of(message), seal))


def open_fields(message: Message, ring: KeyRing, fields: Fields, bound: Sequence[str], *, needs_path: bool) -> None:
    """Decrypt fields of a JSON body like `open_body`; raises UnknownKey, or MessageRejected."""

    def open_field(text: str, path: str) -> str:
        value = json.loads(text) if text.startswith('"') else None
        if not isinstance(value, str) or not value.isascii():
            raise MessageRejected("NotDecrypted", "a field is not text, expected an encrypted field")
        header, content = unseal(value.encode(), ring)
        _check_binding(message, header, bound)
        _check_path(header, path, needs_path=needs_path)
        read(content)
        return content.decode()

    put_content(message, fields.replace(content_of(message), open_field))


def _check_path(header: Header, path: str, *, needs_path: bool) -> None:
    """Raise MessageRejected for a field that was encrypted at another path."""
    if PATH not in header and needs_path:
        raise MessageRejected("NotBound", "a field does not say where it was encrypted, expected its path")
    if header.get(PATH, path) != path:
        raise MessageRejected("BoundElsewhere", "a field was encrypted at another place in the body")


def _plain(message: Message) -> tuple[bytes, bool]:
    """Return the content to encrypt, and whether it is encoded AMQP, which is all but a single data section."""
    body = message.sections.body
    if not body:
        raise MessageRejected("NoBody", "the message has no body to encrypt")
    content = sections.only_data(body)
    return (body, True) if content is None else (content, False)


def _encoded_body(content: bytes) -> bytes:
    try:
        found = sections.split(content)
        sections.body_parts(found.body)
    except Malformed as error:
        raise MessageRejected("NotDecrypted", "the content is not an AMQP body, although its header says so") from error
    if found.body != content:
        raise MessageRejected("NotDecrypted", "the content is more than an AMQP body")
    return content


def _binding(message: Message, bound: Sequence[str]) -> Header:
    return {BOUND: list(bound), BOUND_DIGEST: digest(bound, message)} if bound else {}


def _check_binding(message: Message, header: Header, bound: Sequence[str]) -> None:
    names = listed(header.get(BOUND))
    if header.get(BOUND, names) != names:
        raise MessageRejected("BoundElsewhere", "the content is bound to names that are not properties")
    if not covers(names, bound):
        raise MessageRejected("NotBound", f"the content is not bound to {', '.join(bound)}")
    if names and header.get(BOUND_DIGEST) != digest(names, message):
        raise MessageRejected("BoundElsewhere", "the content belongs to a message with other properties")
