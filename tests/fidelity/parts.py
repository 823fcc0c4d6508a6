"""Takes a delivered message apart: the values that its sender may have set, by the names of their places."""

from collections.abc import Iterator, Mapping

from shared.amqp import map_section, sections
from shared.amqp.codec import decode_all, items_of, pairs_of
from shared.amqp.scan import list_fields
from shared.amqp.values import Array, Described, Value
from shared.message.metadata import ENQUEUE_TIME, OFFSET, PATH, SEQUENCE
from tests.fidelity.specimens import SPECIMEN

STAMPS = frozenset((PATH, ENQUEUE_TIME, SEQUENCE, OFFSET, SPECIMEN))
# The values that the delivering service sets or counts.
_OF_THE_DELIVERY = frozenset(
    (
        *("x-opt-enqueued-time", "x-opt-sequence-number", "x-opt-offset", "x-opt-message-state"),
        *("x-opt-enqueue-sequence-number", "x-opt-partition-id", "x-opt-locked-until"),
    )
)
_DELIVERY_COUNT = 4
_NULL = b"\x40"


def parts(content: bytes) -> dict[str, bytes]:
    """Return the encoded value of every place of a message, without stamps and values of the delivery."""
    return dict(_parts(content))


def _parts(content: bytes) -> Iterator[tuple[str, bytes]]:
    raw = sections.split(content)
    for name, section in (("header", raw.header), ("field", raw.properties)):
        fields = list_fields(section, sections.descriptor(section, 0)[1], len(section)) if section else []
        for index, field in enumerate(fields):
            if field != _NULL and (name, index) != ("header", _DELIVERY_COUNT):
                yield f"{name} {index}", field
    maps: tuple[tuple[str, bytes, frozenset[str]], ...] = (
        ("delivery", raw.delivery_annotations, frozenset()),
        ("annotation", raw.message_annotations, _OF_THE_DELIVERY),
        ("property", raw.application_properties, STAMPS),
        ("footer", raw.footer, frozenset()),
    )
    for name, section, left_out in maps:
        for key, _, start, stop in map_section.entries(section):
            if key not in left_out:
                yield f"{name} {key}", section[start:stop]
    yield "body", raw.body


def changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> dict[str, tuple[bytes, bytes]]:
    """Return the places that differ in any bit; empty bytes mean that a part is missing."""
    return {
        place: (before.get(place, b""), after.get(place, b""))
        for place in sorted(before.keys() | after.keys())
        if before.get(place) != after.get(place)
    }


def is_same_value(place: str, before: bytes, after: bytes) -> bool:
    """Return whether two encodings, possibly of different widths, represent the same value and type."""
    if place == "body":
        return _body(before) == _body(after)
    return bool(before) and bool(after) and _typed(decode_all(before)) == _typed(decode_all(after))


def _body(body: bytes) -> list[object]:
    return [(number, _typed(value)) for number, value in sections.body_parts(body)]


def _typed(value: Value) -> object:
    """Return kind and content of a value, without the width of its encoding."""
    payload = value.payload
    if isinstance(payload, Array):
        return (value.kind, [_typed(item) for item in payload.items])
    if isinstance(payload, Described):
        return (value.kind, _typed(payload.descriptor), _typed(payload.value))
    if value.kind == "list":
        return (value.kind, [_typed(item) for item in items_of(value)])
    if value.kind == "map":
        return (value.kind, [(_typed(key), _typed(item)) for key, item in pairs_of(value)])
    return (value.kind, payload)
