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
from shared.editors.protection.key_names import SealingOptions
from shared.editors.protection.keys import KeyRing
from shared.errors import MessageRejected
from shared.message.message import Message

_TYPE = "cty"


class Sealer:
    """Encrypts the body of a message, of any kind, or fields of a JSON body, each of which becomes a string."""

    def __init__(self, options: SealingOptions, fields: Fields | None, *, as_json: bool = False) -> None:
        """Use the newest key of a ring, or the one that *options* name."""
        self._key = options.kid, options.alg, options.enc
        self._bound = options.bind or ()
        self._fields = fields
        self._as_json = as_json

    def edit(self, message: Message, ring: KeyRing) -> Message:
        """
        Return *message* encrypted; raises MessageRejected, and TargetRefused for an unsuitable key.

        The content type of a body is kept in the header (`cty`). Bound properties have their values from before.
        """
        key = ring.once(SealingKey, *self._key)
        bound = self._bound
        header: Header = {BOUND: list(bound), BOUND_DIGEST: digest(bound, message)} if bound else {}
        if self._fields:

            def seal(text: str, path: str) -> str:
                return f'"{key.seal(text.encode(), {**header, PATH: path})}"'

            put_content(message, self._fields.replace(content_of(message), seal))
            return message
        content, is_encoded = _plain(message)
        if is_encoded:
            header[AMQP_BODY] = True
        if message.content_type is not None:
            header[_TYPE] = message.content_type
        compact = key.seal(content, header)
        message.body = to_json(compact) if self._as_json else compact.encode()
        message.content_type = JSON_TYPE if self._as_json else COMPACT_TYPE
        return message


class Opener:
    """Decrypts the body of a message, or fields of a JSON body, with the key of a ring that each of them names."""

    def __init__(self, fields: Fields | None, bound: Sequence[str], *, needs_path: bool) -> None:
        """Require that the content is *bound* to these properties."""
        self._fields = fields
        self._bound = bound
        self._needs_path = needs_path

    def edit(self, message: Message, ring: KeyRing) -> Message:
        """Return *message* decrypted, a body with its content type; raises UnknownKey, or MessageRejected."""
        if self._fields:
            content = self._fields.replace(content_of(message), lambda *field: self._field(message, ring, *field))
            put_content(message, content)
        else:
            self._open_body(message, ring)
        return message

    def _open_body(self, message: Message, ring: KeyRing) -> None:
        header, content = unseal(content_of(message), ring)
        # A field has a path, and a body has none, as with other software.
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
        self._check_binding(message, header)

    def _field(self, message: Message, ring: KeyRing, text: str, path: str) -> str:
        value = json.loads(text) if text.startswith('"') else None
        if not isinstance(value, str) or not value.isascii():
            raise MessageRejected("NotDecrypted", "a field is not text, expected an encrypted field")
        header, content = unseal(value.encode(), ring)
        self._check_binding(message, header)
        if PATH not in header and self._needs_path:
            raise MessageRejected("NotBound", "a field does not say where it was encrypted, expected its path")
        if header.get(PATH, path) != path:
            raise MessageRejected("BoundElsewhere", "a field was encrypted at another place in the body")
        read(content)
        return content.decode()

    def _check_binding(self, message: Message, header: Header) -> None:
        names = listed(header.get(BOUND))
        if header.get(BOUND, names) != names:
            raise MessageRejected("BoundElsewhere", "the content is bound to names that are not properties")
        if not covers(names, self._bound):
            raise MessageRejected("NotBound", f"the content is not bound to {', '.join(self._bound)}")
        if names and header.get(BOUND_DIGEST) != digest(names, message):
            raise MessageRejected("BoundElsewhere", "the content belongs to a message with other properties")


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
