"""
Properties that a signature or an encryption is bound to, in the one spelling that both ends compare.

1. They are named in any case: application properties as they are called, broker properties as `sys.MessageId`.
2. The spelling is a JSON array with an array of three texts for each, `[name, kind, value]`, in the order of the names
   as Unicode code points, without blanks, in UTF-8, with the escapes of RFC 8785. An absent property is of kind `null`
   like one that is null, and its value is `null`.
3. Kinds: `string` (also symbols, and every broker property), `integer` of whatever width, in decimal digits, `boolean`
   (`true`, `false`), `timestamp` (milliseconds since 1970), `uuid`, `char`, `decimal`, `double` and `float` (the bytes
   of IEEE 754 in hexadecimal digits), `binary` (BASE64URL). Another kind has its AMQP name, and as its value the
   BASE64URL of its AMQP encoding.
4. What is bound is the SHA-256 of that, in BASE64URL.

A message without an id is spelled with the one that it is sent with (`shared.metadata.deterministic_id`).
"""

import hashlib
import json
import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field

from shared.amqp.codec import encode
from shared.amqp.values import Value
from shared.message import Message
from shared.metadata import deterministic_id
from shared.routing import RuleProperties
from shared.rules import SYSTEM_PROPERTIES
from shared.rules.decimals import decimal_of

SYSTEM = "sys."
MESSAGE_ID = "sys.MessageId"
# Those that no hop and no service changes.
LASTING = (
    *("ContentType", "CorrelationId", "MessageId", "PartitionKey", "ReplyTo"),
    *("ReplyToSessionId", "SessionId", "Subject", "To"),
)
_STAMPED = "repl-"
_INTEGERS = frozenset(("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long"))
_FLOATS = {"float": ">f", "double": ">d"}


def _lasting(name: str) -> str:
    """Let through the name of what can be the same at both ends, a broker property in its one spelling."""
    lower = name.lower()
    if lower.startswith(_STAMPED):
        raise ValueError(f"names {name}, expected a property that does not change on the way")
    if not lower.startswith(SYSTEM):
        return name
    known = SYSTEM_PROPERTIES.get(lower[len(SYSTEM) :])
    if known is None or known.name not in LASTING:
        raise ValueError(f"names {name}, expected sys. and one of {', '.join(LASTING)}")
    return SYSTEM + known.name


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len({name.lower() for name in names}) < len(names):
        raise ValueError("names a property twice, expected each once")
    return tuple(sorted(names))


type BoundNames = Annotated[
    tuple[Annotated[str, Field(min_length=1), AfterValidator(_lasting)], ...],
    Field(strict=False, min_length=1),
    AfterValidator(_once),
]


def names_of(message: Message) -> list[str]:
    """Return every property of *message* that can be bound, in order."""
    properties = RuleProperties(message)
    system = [SYSTEM + name for name in LASTING if name == "MessageId" or properties.system(name) is not None]
    user = [name for name, _ in message.application_properties() if not name.lower().startswith(_STAMPED)]
    # Of two that differ in case only, a rule sees the first.
    return sorted([*system, *{name.lower(): name for name in reversed(user)}.values()])


def spelled(names: Sequence[str], message: Message) -> bytes:
    """Return the one spelling of the properties *names*, which are sorted."""
    properties = RuleProperties(message)
    return _dumped([[name, *_told(name, message, properties)] for name in names]).encode()


def digest(names: Sequence[str], message: Message) -> str:
    """Return the BASE64URL of the SHA-256 of the one spelling."""
    return encoded(hashlib.sha256(spelled(names, message)).digest())


def message_id(message: Message) -> str | None:
    """Return the id that *message* has or is sent with, as text."""
    return _told(MESSAGE_ID, message, RuleProperties(message))[1]


def encoded(content: bytes) -> str:
    """Return BASE64URL without padding (RFC 7515)."""
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def covers(bound: Iterable[object], names: Iterable[str]) -> bool:
    """Tell whether all of *names* are among the names *bound*, in any case."""
    present = {each.lower() for each in bound if isinstance(each, str)}
    return all(name.lower() in present for name in names)


def _told(name: str, message: Message, properties: RuleProperties) -> tuple[str, str | None]:
    if not name.startswith(SYSTEM):
        return _of_value(properties.user(name.lower()))
    value = properties.system(name[len(SYSTEM) :])
    if value is None or value.payload is None:
        identity = deterministic_id(message.arrival) if name == MESSAGE_ID else None
        return ("null", None) if identity is None else ("string", identity)
    # Azure's host makes a string of an id of another type.
    return "string", value.payload.hex() if isinstance(value.payload, bytes) else str(value.payload)


def _of_value(value: Value | None) -> tuple[str, str | None]:
    if value is None or value.payload is None:
        return "null", None
    kind, payload = value.kind, value.payload
    match payload:
        case bool():
            told = "boolean", "true" if payload else "false"
        case str():
            told = "char" if kind == "char" else "string", payload
        case int() if kind in _INTEGERS:
            told = "integer", str(payload)
        case int() | UUID():
            told = kind, str(payload)
        case float():
            told = kind, struct.pack(_FLOATS[kind], payload).hex()
        case bytes() if kind.startswith("decimal"):
            told = "decimal", str(decimal_of(kind, payload).normalize())
        case bytes() if kind == "binary":
            told = kind, encoded(payload)
        case _:
            told = kind, encoded(encode(value))
    return told


_dumped = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
