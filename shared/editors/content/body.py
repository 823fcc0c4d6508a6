"""The content of a message's body, for editors that read or replace it."""

from shared.amqp import sections
from shared.amqp.codec import encode
from shared.amqp.values import Value, binary, string
from shared.codecs.text import charset_in, recode
from shared.errors import MessageRejected
from shared.message.message import Message

_AMQP_VALUE = b"\x00\x53\x77"
_EXPECTED = "expected data, or a value that is a string or binary"


def content_of(message: Message) -> bytes:
    """
    Return the bytes of data sections, or of an amqp-value that is a string (as UTF-8) or a binary.

    Raises MessageRejected for other bodies, and without a body.
    """
    body = message.sections.body
    if not body:
        raise MessageRejected("NoBody", f"the message has no body, {_EXPECTED}")
    content = message.body
    if content is not None:
        return content
    number, value = sections.body_parts(body)[0]
    content = _content(number, value)
    if content is None:
        kind = f" ({value.kind})" if number == sections.VALUE else ""
        raise MessageRejected("UnreadableBody", f"the body is an {sections.NAMES[number]}{kind}, {_EXPECTED}")
    return content


def put_content(message: Message, content: bytes) -> None:
    """
    Make *content* the body: an amqp-value stays a string or a binary, other bodies become data.

    A string becomes data too if *content* is not UTF-8.
    """
    body = message.sections.body
    if body and sections.descriptor(body, 0)[0] == sections.VALUE:
        _, value = sections.body_parts(body)[0]
        if value.kind == "binary":
            message.sections.body = _AMQP_VALUE + encode(binary(content))
            return
        if value.kind == "string":
            try:
                message.sections.body = _AMQP_VALUE + encode(string(content.decode()))
            except UnicodeDecodeError:
                message.body = content
            return
    message.body = content


def body_or_nothing(message: Message) -> bytes:
    """Return what `content_of` returns, and b"" without a body: Azure's host turns one into the other."""
    return content_of(message) if message.sections.body else b""


def is_string(message: Message) -> bool:
    """Return whether the body is an amqp-value that is a string: characters, in no encoding of the sender."""
    body = message.sections.body
    if not body or sections.descriptor(body, 0)[0] != sections.VALUE:
        return False
    number, value = sections.body_parts(body)[0]
    return number == sections.VALUE and value.kind == "string"


def labelled_content_of(message: Message) -> bytes:
    """
    Return what `content_of` returns, for a string in the character set that its content type or XML declaration names.

    So the bytes are what a reader of that content type expects. Raises MessageRejected, also if it lacks a character.
    """
    content = content_of(message)
    named = charset_in(message.content_type, content) if is_string(message) else None
    return content if named is None else recode(content, "utf-8", named)


def size_of(message: Message) -> int:
    """Return the length of what `content_of` returns; for other bodies that of their encoding."""
    body = message.sections.body
    content = message.body
    if content is None:
        content = _content(*sections.body_parts(body)[0])
    return len(body if content is None else content)


def _content(number: int, value: Value) -> bytes | None:
    if number == sections.VALUE and value.kind == "string" and isinstance(value.payload, str):
        return value.payload.encode()
    if number == sections.VALUE and value.kind == "binary" and isinstance(value.payload, bytes):
        return value.payload
    return None
