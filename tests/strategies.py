"""
Hypothesis strategies of AMQP values and messages in every encoding, the wasteful ones included.
"""

import struct
import uuid
from typing import Any

from hypothesis import strategies as st

from shared.amqp.codec import comparable, encode
from shared.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Sections,
)
from shared.amqp.values import KINDS, NULL, Array, Described, Value

_RANGES = {
    0x50: (0, 2**8 - 1),
    0x51: (-(2**7), 2**7 - 1),
    0x52: (0, 2**8 - 1),
    0x53: (0, 2**8 - 1),
    0x54: (-(2**7), 2**7 - 1),
    0x55: (-(2**7), 2**7 - 1),
    0x60: (0, 2**16 - 1),
    0x61: (-(2**15), 2**15 - 1),
    0x70: (0, 2**32 - 1),
    0x71: (-(2**31), 2**31 - 1),
    0x80: (0, 2**64 - 1),
    0x81: (-(2**63), 2**63 - 1),
    0x83: (-(2**63), 2**63 - 1),
}


def _unpacked(layout: str, content: bytes) -> float:
    number: float = struct.unpack(layout, content)[0]
    return number


def _float_nan(negative: bool, mantissa: int) -> float:
    return _unpacked(">d", (negative << 63 | 0x7FF << 52 | mantissa << 29).to_bytes(8))


doubles = st.binary(min_size=8, max_size=8).map(lambda content: _unpacked(">d", content)) | st.floats()
floats = st.floats(width=32) | st.builds(_float_nan, st.booleans(), st.integers(1, 2**23 - 1))
chars = st.integers(0, 0x10FFFF).map(chr)
uuids = st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number))
binaries = st.binary(max_size=40)
strings = st.text(max_size=40) | st.text(min_size=60, max_size=63)  # a text of 63 code points has at most 252 bytes
symbols = st.text(st.characters(max_codepoint=127), max_size=40)

_FIXED_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_UNASSIGNED = {
    code: st.binary(min_size=width, max_size=width) if (width := _FIXED_WIDTHS.get(code >> 4)) is not None else binaries
    for code in range(0x40, 0x100)
    if code not in KINDS
}

# What a primitive of each format code can hold.
PAYLOADS: dict[int, st.SearchStrategy] = {
    0x40: st.none(),
    0x41: st.just(True),
    0x42: st.just(False),
    0x43: st.just(0),
    0x44: st.just(0),
    0x45: st.just(()),
    0x56: st.booleans(),
    0x72: floats,
    0x73: chars,
    0x74: st.binary(min_size=4, max_size=4),
    0x82: doubles,
    0x84: st.binary(min_size=8, max_size=8),
    0x94: st.binary(min_size=16, max_size=16),
    0x98: uuids,
    0xA0: binaries,
    0xA1: strings,
    0xA3: symbols,
    0xB0: binaries | st.binary(min_size=256, max_size=300),
    0xB1: strings,
    0xB3: symbols,
    **{code: st.integers(minimum, maximum) for code, (minimum, maximum) in _RANGES.items()},
    **_UNASSIGNED,
}


_OF_CODE = {code: st.builds(Value, st.just(code), payloads) for code, payloads in PAYLOADS.items()}


def of_codes(*codes: int) -> st.SearchStrategy[Value]:
    # Not one_of, which would give each code the weight of every other alternative that it is later joined with.
    return st.sampled_from(codes).flatmap(_OF_CODE.__getitem__)


def of_kind(*kinds: str) -> st.SearchStrategy[Value]:
    return of_codes(*(code for code, kind in KINDS.items() if kind in kinds and code in PAYLOADS))


primitives = of_codes(*PAYLOADS)
assigned_primitives = of_codes(*(code for code in PAYLOADS if code in KINDS))


def _first_that_fits(candidates: list[Value]) -> Value:
    """Return the first value that its format code can hold: the narrow compounds end at 255 bytes."""
    for candidate in candidates[:-1]:
        try:
            encode(candidate)
        except ValueError:
            continue
        return candidate
    return candidates[-1]


def _compound(narrow: int, wide: int, payloads: st.SearchStrategy) -> st.SearchStrategy[Value]:
    narrow_or_wide = payloads.map(lambda payload: _first_that_fits([Value(narrow, payload), Value(wide, payload)]))
    return narrow_or_wide | payloads.map(lambda payload: Value(wide, payload))


def _array(
    item_codes: tuple[int, ...], payloads: st.SearchStrategy, descriptors: st.SearchStrategy
) -> st.SearchStrategy[Value]:
    def build(array_codes: tuple[int, ...], item_payloads: list[Any], described_by: list[Any]) -> Value:
        return _first_that_fits(
            [
                Value(
                    code, Array(item_code, tuple(described_by), tuple(Value(item_code, item) for item in item_payloads))
                )
                for code in array_codes
                for item_code in item_codes
            ]
        )

    codes = st.sampled_from([(0xE0, 0xF0), (0xF0,)])
    return st.builds(build, codes, st.lists(payloads, max_size=4), descriptors)


_no_descriptors: st.SearchStrategy[list[Value]] = st.just([])
_ARRAYS_OF_CODE = {code: _array((code,), payloads, _no_descriptors) for code, payloads in PAYLOADS.items()}
_arrays_of_nothing = st.sampled_from((0xE0, 0xF0)).map(lambda code: Value(code, Array(None, (), ())))
_arrays_of_primitives = st.sampled_from(tuple(PAYLOADS)).flatmap(_ARRAYS_OF_CODE.__getitem__)


def _distinct(pairs: list[tuple[Value, Value]]) -> tuple[tuple[Value, Value], ...]:
    """Return pairs with each key once: a map with a key twice is malformed."""
    return tuple({comparable(key): (key, value) for key, value in pairs}.values())


def _nested(children: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    items = st.lists(children, max_size=4).map(tuple)
    pairs = st.lists(st.tuples(children, children), max_size=3).map(_distinct)
    descriptors = st.lists(children, max_size=2)
    return st.one_of(
        _compound(0xC0, 0xD0, items),
        _compound(0xC1, 0xD1, pairs),
        st.builds(Described, children, children).map(lambda payload: Value(0x00, payload)),
        _arrays_of_nothing,
        _arrays_of_primitives,
        _array((0xA1, 0xB1), strings, descriptors),
        _array((0xC0, 0xD0), items, descriptors),
        _array((0xC1, 0xD1), pairs, descriptors),
        _array(
            (0xE0, 0xF0), (_arrays_of_nothing | _arrays_of_primitives).map(lambda value: value.payload), descriptors
        ),
    )


values = st.recursive(primitives, _nested, max_leaves=12)
maps = st.lists(st.tuples(values, values), max_size=4).map(_distinct)
lists = st.lists(values, max_size=5).map(tuple)
map_values = _compound(0xC1, 0xD1, maps)
list_values = _compound(0xC0, 0xD0, lists) | of_codes(0x45)

# Messages

_NAMES = {
    HEADER: "amqp:header:list",
    DELIVERY_ANNOTATIONS: "amqp:delivery-annotations:map",
    MESSAGE_ANNOTATIONS: "amqp:message-annotations:map",
    PROPERTIES: "amqp:properties:list",
    APPLICATION_PROPERTIES: "amqp:application-properties:map",
    DATA: "amqp:data:binary",
    SEQUENCE: "amqp:amqp-sequence:list",
    VALUE: "amqp:amqp-value:*",
    FOOTER: "amqp:footer:map",
}


def section(number: int, content: st.SearchStrategy[Value]) -> st.SearchStrategy[bytes]:
    """Return the encoded section with its descriptor in each of the forms that the specification allows."""
    descriptors = st.sampled_from(
        [Value(0x53, number), Value(0x53, number), Value(0x80, number)]
        + [Value(code, _NAMES[number]) for code in (0xA3, 0xB3)]
    )
    return st.builds(lambda descriptor, value: encode(Value(0x00, Described(descriptor, value))), descriptors, content)


def _fields(*kinds: str | tuple[str, ...]) -> st.SearchStrategy[Value]:
    """Return lists of fields of these kinds, each possibly null and the last ones possibly absent."""
    fields = [st.just(NULL) | of_kind(*((kind,) if isinstance(kind, str) else kind)) for kind in kinds]
    some = st.integers(0, len(fields)).flatmap(lambda count: st.tuples(*fields[:count]))
    return _compound(0xC0, 0xD0, some)


_message_id = ("string", "ulong", "uuid", "binary")
_headers = _fields("boolean", "ubyte", "uint", "boolean", "uint")
_properties = _fields(
    *(_message_id, "binary", "string", "string", "string", _message_id, "symbol", "symbol"),
    *("timestamp", "timestamp", "string", "uint", "string"),
)


def _pairs(keys: st.SearchStrategy[Value], contents: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return _compound(0xC1, 0xD1, st.lists(st.tuples(keys, contents), max_size=5).map(_distinct))


_annotations = _pairs(of_kind("symbol"), values)
_application_properties = _pairs(of_kind("string"), assigned_primitives)

bodies = st.one_of(
    st.just(b""),
    st.lists(section(DATA, of_kind("binary")), min_size=1, max_size=3).map(b"".join),
    st.lists(section(SEQUENCE, list_values), min_size=1, max_size=3).map(b"".join),
    section(VALUE, values),
)

_absent = st.just(b"")
messages: st.SearchStrategy[Sections] = st.builds(
    Sections,
    _absent | section(HEADER, _headers),
    _absent | section(DELIVERY_ANNOTATIONS, _annotations),
    _absent | section(MESSAGE_ANNOTATIONS, _annotations),
    _absent | section(PROPERTIES, _properties),
    _absent | section(APPLICATION_PROPERTIES, _application_properties),
    bodies,
    _absent | section(FOOTER, _annotations),
)

# Damage

_INTERESTING = st.sampled_from(
    [0x00, 0x01, 0x40, 0x45, 0x53, 0x7F, 0x80, 0xA1, 0xB1, 0xC0, 0xD0, 0xD1, 0xE0, 0xF0, 0xFF]
)


@st.composite
def damaged(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """Return valid bytes of which a few are changed, removed, repeated or followed by others."""
    content = bytearray(draw(valid))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 4))
        piece = bytes(content[at : at + length])
        content[at : at + length] = draw(
            st.just(b"")
            | st.just(piece * 2)
            | st.lists(_INTERESTING, max_size=4).map(bytes)
            | st.binary(min_size=length, max_size=length)
        )
    return bytes(content)
