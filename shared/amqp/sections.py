"""
The sections of an AMQP 1.0 message, each kept as the bytes that arrived.

Source: OASIS AMQP 1.0, part 3, section 3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from shared.amqp.codec import decode
from shared.amqp.scan import BINARIES, LISTS, MAPS, compound_content, extent_bytes, list_fields, skip
from shared.amqp.shapes import Cut, Part, Shapes, cut_into
from shared.amqp.values import Malformed, Value

HEADER = 0x70
DELIVERY_ANNOTATIONS = 0x71
MESSAGE_ANNOTATIONS = 0x72
PROPERTIES = 0x73
APPLICATION_PROPERTIES = 0x74
DATA = 0x75
SEQUENCE = 0x76
VALUE = 0x77
FOOTER = 0x78

_ANYTHING = frozenset(range(256))
_SECTIONS = {
    HEADER: ("header", "list", LISTS),
    DELIVERY_ANNOTATIONS: ("delivery-annotations", "map", MAPS),
    MESSAGE_ANNOTATIONS: ("message-annotations", "map", MAPS),
    PROPERTIES: ("properties", "list", LISTS),
    APPLICATION_PROPERTIES: ("application-properties", "map", MAPS),
    DATA: ("data", "binary", BINARIES),
    SEQUENCE: ("amqp-sequence", "list", LISTS),
    VALUE: ("amqp-value", "*", _ANYTHING),
    FOOTER: ("footer", "map", MAPS),
}
"""The name of each section, the rest of its symbolic descriptor, and the format codes of its content."""
NAMES = {number: name for number, (name, _, _) in _SECTIONS.items()}
_SYMBOLS = {f"amqp:{name}:{kind}": number for number, (name, kind, _) in _SECTIONS.items()}
_CONTENTS = {number: codes for number, (_, _, codes) in _SECTIONS.items()}

_BODIES = frozenset((DATA, SEQUENCE, VALUE))
# The usual encodings of the descriptors.
_USUAL = {bytes((0x00, 0x53, number)): number for number in NAMES}
_SHORT_DATA = b"\x00\x53\x75\xa0"
_LONG_DATA = b"\x00\x53\x75\xb0"
# The same followed by the format code of the content, with the section, the bytes that its size does not count, and the
# bits of the next four bytes that are not its size.
_HEAD = Struct(">4sI")
_LENGTHS = dict.fromkeys((160, 192, 193), (5, 24)) | dict.fromkeys((176, 208, 209), (8, 0))
_USUAL_CONTENTS = {
    bytes((0x00, 0x53, number, code)): (number, *length)
    for number, codes in _CONTENTS.items()
    for code, length in _LENGTHS.items()
    if code in codes
}
_REPEATABLE = frozenset((DATA, SEQUENCE))
_NOTHING = HEADER - 1
_PLACES = FOOTER - _NOTHING + 1


@dataclass(slots=True)
class Sections:
    """The encoded sections of one message with their descriptors; empty if absent. A body can be several sections."""

    header: bytes = b""
    delivery_annotations: bytes = b""
    message_annotations: bytes = b""
    properties: bytes = b""
    application_properties: bytes = b""
    body: bytes = b""
    footer: bytes = b""

    def copy(self) -> "Sections":
        """Return a copy whose sections can be replaced independently."""
        return Sections(
            self.header,
            self.delivery_annotations,
            self.message_annotations,
            self.properties,
            self.application_properties,
            self.body,
            self.footer,
        )

    def encode(self) -> bytes:
        """Return the message's bytes."""
        return b"".join(
            (
                self.header,
                self.delivery_annotations,
                self.message_annotations,
                self.properties,
                self.application_properties,
                self.body,
                self.footer,
            )
        )


def split(buffer: bytes, position: int = 0) -> Sections:
    """
    Return the sections of the message that fills *buffer* from *position*.

    Order, descriptors and sizes are checked, the contents are not decoded. A message without a body is accepted, as
    the services accept it; anything else that the specification forbids is Malformed.
    """
    # By number, from that of the header; the first place is for nothing.
    parts = [b""] * _PLACES
    end = len(buffer)
    last_head = end - _HEAD.size
    head_at, usual_of = _HEAD.unpack_from, _USUAL_CONTENTS.get
    previous = 0
    start = position
    while position < end:
        # Reading the usual descriptors and sizes without a call saves 2.5 µs a message (benchmarks/worker_cost.py).
        usual = None
        if position <= last_head:
            head, size = head_at(buffer, position)
            usual = usual_of(head)
        if usual is not None:
            number, uncounted, shift = usual
            if number <= previous or previous in _BODIES:
                _check_order(number, previous, position)
            stop = position + uncounted + (size >> shift)
        else:
            number, content = descriptor(buffer, position)
            if number <= previous or previous in _BODIES:
                _check_order(number, previous, position)
            stop = skip(buffer, content, end)
            if buffer[content] not in _CONTENTS[number]:
                raise Malformed(
                    f"{NAMES[number]} at byte {position}: format code 0x{buffer[content]:02x} is not what it holds"
                )
        if stop > end:
            raise Malformed(f"{NAMES[number]} at byte {position}: it reaches beyond the end of the message")
        if number != previous:
            # Several data or sequence sections form one body, which is sliced at its end.
            if previous:
                parts[previous - _NOTHING] = buffer[start:position]
            start = position
        previous, position = number, stop
    if previous:
        parts[previous - _NOTHING] = buffer[start:end]
    _, header, delivery, annotations, properties, application, data_, sequence, value, footer = parts
    return Sections(header, delivery, annotations, properties, application, data_ or sequence or value, footer)


def _check_order(number: int, previous: int, position: int) -> None:
    if number < previous or (number == previous and number not in _REPEATABLE):
        raise Malformed(f"{NAMES[number]} at byte {position}: after {NAMES[previous]}, expected it before")
    if number in _BODIES and number != previous:
        raise Malformed(f"{NAMES[number]} at byte {position}: after {NAMES[previous]}, expected one kind of body")


def descriptor(buffer: bytes, position: int) -> tuple[int, int]:
    """Return the number of the section at *position* and where its content starts."""
    usual = _USUAL.get(buffer[position : position + 3])
    if usual is not None:
        return usual, position + 3
    if buffer[position : position + 1] != b"\x00":
        raise Malformed(f"section at byte {position}: expected a descriptor")
    value, content = decode(buffer, position + 1)
    number = _number(value)
    if number not in NAMES:
        raise Malformed(f"section at byte {position}: no section has this descriptor")
    return number, content


def _number(value: Value) -> int:
    if value.kind == "ulong" and isinstance(value.payload, int):
        return value.payload
    if value.kind == "symbol" and isinstance(value.payload, str):
        return _SYMBOLS.get(value.payload, 0)
    return 0


def fields_of(section: bytes) -> Sequence[bytes]:
    """Return the encoded fields of a section that is a list, no fields for an absent section."""
    if not section:
        return ()
    cut = _CUTS.find(section)
    return list_fields(section, descriptor(section, 0)[1], len(section)) if cut is None else cut(section)


def _cut_of(section: bytes) -> tuple[list[Part], Cut] | None:
    fields = list_fields(section, descriptor(section, 0)[1], len(section))
    _, position, _ = compound_content(section, descriptor(section, 0)[1], len(section))
    parts: list[Part] = []
    for field in fields:
        extent = extent_bytes(field[0])
        if extent is None:
            return None
        parts.append((position, position + extent, position + len(field)))
        position += len(field)
    return parts, cut_into(parts)


_CUTS = Shapes(_cut_of)


def body_parts(body: bytes) -> list[tuple[int, Value]]:
    """Return the body's sections as (number, content): a binary in DATA, a list in SEQUENCE, anything in VALUE."""
    parts = []
    position = 0
    while position < len(body):
        number, position = descriptor(body, position)
        value, position = decode(body, position)
        parts.append((number, value))
    return parts


def only_data(body: bytes) -> bytes | None:
    """Return the content of a body that is a single data section in its usual encoding, None for any other body."""
    if body[:4] == _SHORT_DATA and len(body) == 5 + int.from_bytes(body[4:5]):
        return body[5:]
    if body[:4] == _LONG_DATA and len(body) == 8 + int.from_bytes(body[4:8]):
        return body[8:]
    return None


def data(content: bytes) -> bytes:
    """Return an encoded data section that holds *content*."""
    if len(content) <= 0xFF:
        return b"%b%c%b" % (_SHORT_DATA, len(content), content)
    return b"%b%b%b" % (_LONG_DATA, len(content).to_bytes(4), content)
