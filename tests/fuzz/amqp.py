"""
Damaged AMQP for shared/amqp: `python -m tests.fuzz amqp --seconds 60 --seed 1`.

Whatever the bytes, each function returns what encodes to the same bytes or raises Malformed, and the scanner agrees
with the decoder. A case that does not hold is printed as hexadecimal, to become a test.
"""

import itertools
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from shared.amqp import values
from shared.amqp.codec import MAX_DEPTH, decode, encode, items_of, pairs_of, plain
from shared.amqp.scan import LISTS, MAPS, list_fields, map_entries, skip, text
from shared.amqp.sections import Sections, body_parts, data, descriptor, split
from shared.amqp.values import Array, Described, Malformed, Value
from tests.fuzz import campaign

type Encode = Callable[[Value], bytes]

_SLOW_SECONDS = 2.0
_WORTH_KEEPING = ("message", "list", "map", "array")


def check(raw: bytes, encode: Encode = encode) -> str:
    """Return the kind of *raw*; an AssertionError, or any exception but Malformed, is a bug in shared/amqp."""
    verdict = check_value(raw, encode)
    return "message" if check_message(raw, encode) else verdict


def check_value(raw: bytes, encode: Encode = encode) -> str:
    """Check that decoder and scanner agree on the value at the start of *raw*."""
    try:
        value, stop = decode(raw)
    except Malformed:
        _check_scan(raw)
        return "malformed"
    assert encode(value) == raw[:stop]
    assert skip(raw, 0, len(raw)) == stop
    assert decode(raw, 0, stop)[1] == stop
    with suppress(Malformed):  # two keys of a map that have the same plain value
        plain(value)
    if value.kind == "map":
        pairs = pairs_of(value)
        entries = map_entries(raw, 0, len(raw))
        assert [(key, raw[start:at], raw[at:end]) for key, start, at, end in entries] == [
            (_key(key), encode(key), encode(item)) for key, item in pairs
        ]
    elif value.kind == "list":
        assert list_fields(raw, 0, len(raw)) == [encode(item) for item in items_of(value)]
    return value.kind


def check_message(raw: bytes, encode: Encode = encode) -> bool:
    """Check that *raw* is split and joined unchanged, and that what its sections hold is read or refused."""
    try:
        sections = split(raw)
    except Malformed:
        return False
    assert sections.encode() == raw
    for section in (
        sections.header,
        sections.delivery_annotations,
        sections.message_annotations,
        sections.properties,
        sections.application_properties,
        sections.footer,
    ):
        if section:
            _, position = descriptor(section, 0)
            check_value(section[position:], encode)
            _check_scan(section[position:])
    try:
        parts = body_parts(sections.body)
    except Malformed:
        return True
    assert all(number in (0x75, 0x76, 0x77) for number, _ in parts)
    return True


def _key(value: Value) -> str | None:
    return value.payload if value.kind in ("string", "symbol") and isinstance(value.payload, str) else None


def _check_scan(raw: bytes) -> None:
    """Check that the scanner raises nothing but Malformed, and that what it returns lies in a row."""
    try:
        stop = skip(raw, 0, len(raw))
        assert 0 < stop <= len(raw)
        if raw[0] in MAPS:
            entries = map_entries(raw, 0, len(raw))
            assert all(start < value_start < end <= stop for _, start, value_start, end in entries)
            assert all(one[-1] == other[1] for one, other in itertools.pairwise(entries))
        elif raw[0] in LISTS:
            fields = list_fields(raw, 0, len(raw))
            assert raw[:stop].endswith(b"".join(fields))
        else:
            text(raw)
    except Malformed:
        return


class Mutator:
    """Valid values and messages from a seed, and damage to them."""

    def __init__(self, seed: int) -> None:
        """Start from the valid cases; what survives damage is damaged again later."""
        self._random = random.Random(seed)
        self._corpus = {
            "values": [encode(self.value(3)) for _ in range(200)],
            "messages": [self.message() for _ in range(200)],
        }

    def next(self) -> bytes:
        """Return a valid case with some of its bytes changed."""
        content = bytearray(self._valid())
        for _ in range(self._random.choice((1, 1, 1, 2, 4, 8))):
            self._damage(content)
        return bytes(content)

    def keep(self, raw: bytes, verdict: str) -> None:
        """Damage a case that was found valid again later; each kind has as many places as the others."""
        kept = self._corpus.setdefault(verdict, [])
        if len(kept) < 500:
            kept.append(raw)
        else:
            kept[self._random.randrange(len(kept))] = raw

    def _valid(self) -> bytes:
        return self._random.choice(self._corpus[self._random.choice(list(self._corpus))])

    def value(self, depth: int) -> Value:
        """Return a value nested at most *depth* levels deep."""
        pick = self._random
        if depth and pick.random() < 0.6:
            items = tuple(self.value(depth - 1) for _ in range(pick.randrange(5)))
            pairs = tuple((self.value(depth - 1), self.value(depth - 1)) for _ in range(pick.randrange(4)))
            same = tuple(Value(0x71, pick.randrange(-(2**31), 2**31)) for _ in range(pick.randrange(5)))
            rows = tuple(Value(0xD0, items) for _ in range(pick.randrange(3)))
            codes = pick.choices(range(0x40, 0x100), k=2)
            return pick.choice(
                (
                    Value(0xD0, items),
                    Value(0xD1, pairs),
                    Value(0x00, Described(self.value(depth - 1), self.value(depth - 1))),
                    Value(0xF0, Array(0x71, (), same)),
                    Value(0xE0, Array(0x71, (values.ulong(5),), same)),
                    Value(0xF0, Array(0xD0, (), rows)),
                    Value(0xE0, Array(0x40, (), (values.NULL,) * pick.randrange(20))),
                    Value(0xE0, Array(codes[0], (), ())),
                )
            )
        return pick.choice(
            (
                values.NULL,
                values.TRUE,
                Value(0x56, pick.random() < 0.5),
                values.ubyte(pick.randrange(256)),
                values.uint(pick.randrange(2**32)),
                values.ulong(pick.randrange(300)),
                values.long(pick.randrange(-(2**63), 2**63)),
                values.double(pick.random()),
                values.float32(0.5),
                Value(0x94, pick.randbytes(16)),
                values.char(chr(pick.randrange(0x110000))),
                values.timestamp(pick.randrange(2**41)),
                values.uuid(uuid.UUID(bytes=pick.randbytes(16))),
                values.binary(pick.randbytes(pick.randrange(20))),
                values.string("grün" * pick.randrange(4)),
                Value(0xB1, "wide"),
                values.symbol("x-opt-partition-key"),
                Value(0xA3, "short"),
                Value(0xC7, b"unassigned"),
            )
        )

    def message(self) -> bytes:
        """Return a message with some of the sections."""
        pick = self._random

        def section(number: int, content: Value) -> bytes:
            kept = pick.random() < 0.7
            return encode(values.described(values.ulong(number), content)) if kept else b""

        def pairs() -> Value:
            return values.map_((values.symbol(f"key-{number}"), self.value(1)) for number in range(pick.randrange(4)))

        return Sections(
            section(0x70, values.list_([values.TRUE, values.NULL, values.uint(1000)])),
            section(0x71, pairs()),
            section(0x72, pairs()),
            section(0x73, values.list_([values.string("id"), values.NULL, values.string("to")])),
            section(0x74, pairs()),
            pick.choice(
                (
                    b"",
                    data(b"{}"),
                    data(pick.randbytes(300)) * 2,
                    encode(values.described(values.ulong(0x76), values.list_([self.value(1)]))),
                    encode(values.described(values.symbol("amqp:amqp-value:*"), self.value(2))),
                )
            ),
            section(0x78, pairs()),
        ).encode()

    def _damage(self, content: bytearray) -> None:
        pick = self._random
        at = pick.randrange(len(content) + 1)
        length = pick.choice((0, 1, 1, 2, 4, 16))
        match pick.randrange(7):
            case 0:
                content[at : at + 1] = bytes((pick.randrange(256),))
            case 1:
                content[at : at + 1] = pick.choice(
                    (b"\x00", b"\x01", b"\x40", b"\x7f", b"\x80", b"\xff", b"\xd0", b"\xf0")
                )
            case 2:
                del content[at : at + length]
            case 3:
                content[at:at] = content[at : at + length] * pick.choice((1, 2, 2 * MAX_DEPTH))
            case 4:
                content[at:at] = pick.randbytes(length)
            case 5:
                other = self._valid()
                start = pick.randrange(len(other) + 1)
                content[at : at + length] = other[start : start + pick.choice((1, 4, 16, 64))]
            case _:
                del content[at:]


def run(seed: int, cases: int | None = None, seconds: float | None = None, encode: Encode = encode) -> Counter[str]:
    """Check damaged cases until *cases* or *seconds* are reached; return the number of cases of each kind."""
    return campaign.run(_cases(Mutator(seed), encode), seed, cases, seconds)


def _cases(mutator: Mutator, encode: Encode) -> Iterator[campaign.Case]:
    def check_next() -> list[str]:
        before = time.monotonic()
        verdict = check(raw, encode)
        took = time.monotonic() - before
        assert took < _SLOW_SECONDS, f"took {took:.1f} s"
        if verdict in _WORTH_KEEPING and 16 < len(raw) < 4096:
            mutator.keep(raw, verdict)
        return [verdict]

    while True:
        raw = mutator.next()
        yield campaign.Case("", [raw], check_next)
