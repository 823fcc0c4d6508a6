"""The model of Azure's host, compared with what Microsoft's own code answered."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.dotnet_message import reencode
from host.dotnet_values import CannotBind, CannotReceive
from shared.amqp.decimals import repaired
from tests.answers import Answer, answers

ANSWERS = list(answers())

# The messages for which the model answers otherwise, with the reason. The map keys, formats and orders of sections that
# only .NET accepts, and malformed arrays, turned out to need no code of their own.
DIFFERENT: dict[tuple[str, str], str] = {}


def outcome(wire: bytes, now: int, delivery_count_offset: int) -> bytes | str:
    try:
        return reencode(wire, now, delivery_count_offset=delivery_count_offset)
    except CannotReceive:
        return "receive"
    except CannotBind:
        return "bind"


def agrees(answer: Answer) -> bool:
    expected = answer.stage if answer.content is None else answer.content
    # The host adds less than a millisecond of its clock to a time to live.
    moments = range(answer.clock[0], answer.clock[1] + 2)
    return any(outcome(answer.wire, now, answer.delivery_count_offset) == expected for now in moments)


def test_the_model_answers_as_microsoft_does_but_for_the_listed_messages() -> None:
    different = {(answer.name, answer.service) for answer in ANSWERS if not agrees(answer)}
    assert different == DIFFERENT.keys()
    assert len(ANSWERS) == 1584


def test_a_repaired_answer_has_the_decimals_of_the_source() -> None:
    names = ("12345", "scale2", "scale28", "neg", "97bit", "zero", "neg-zero")
    wanted = {f"hand {where} decimal128-{name}" for where in ("value", "prop", "ann") for name in names}
    simple = [one for one in ANSWERS if one.name in wanted]
    assert len(simple) >= 20
    for one in simple:
        assert one.content is not None
        assert one.content != one.wire
        assert repaired(one.content) == one.wire


def byte_changed(message: bytearray, source: random.Random) -> None:
    usual = (0x00, 0x40, 0x45, 0x53, 0x83, 0x94, 0xA1, 0xA3, 0xC1, 0xD1, 0xE0, 0xF0, 0x7F, 0xFF)
    message[source.randrange(len(message))] = source.choice((source.randrange(256), *usual))


def bytes_removed(message: bytearray, source: random.Random) -> None:
    at = source.randrange(len(message))
    del message[at : at + source.randint(1, 9)]


def bytes_inserted(message: bytearray, source: random.Random) -> None:
    at = source.randrange(len(message))
    message[at:at] = source.randbytes(source.randint(1, 5))


def part_of_another_inserted(message: bytearray, source: random.Random) -> None:
    other = source.choice(ANSWERS).wire
    start = source.randrange(len(other) + 1)
    at = source.randrange(len(message))
    message[at:at] = other[start : start + source.randint(1, 40)]


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(byte_changed, bytes_removed, bytes_inserted, part_of_another_inserted),
)


@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_message_gives_a_message_or_one_of_the_two_errors(seed: int) -> None:
    source = random.Random(seed)
    outcomes = {"receive": 0, "bind": 0, "message": 0}
    for _ in range(10_000):
        message = bytearray(source.choice(ANSWERS).wire or b"\x00")
        for mutate in source.choices(MUTATIONS, k=source.choice((1, 1, 2))):
            if message:
                mutate(message, source)
        found = outcome(bytes(message), 0, 1)
        outcomes[found if isinstance(found, str) else "message"] += 1
    assert min(outcomes.values()) > 10


@given(
    st.binary(max_size=80), st.sampled_from([b"", b"\x00\x53\x74", b"\x00\x53\x73", b"\x00\x53\x70", b"\x00\x53\x77"])
)
def test_whatever_arrives_gives_a_message_or_one_of_the_two_errors(content: bytes, prefix: bytes) -> None:
    once = outcome(prefix + content, 0, 0)
    if isinstance(once, bytes):
        assert outcome(once, 0, 0) == once


def test_values_nested_too_deep_fail_the_receive_call() -> None:
    deep = b"\xd0\x00\x00\x00\x00\x00\x00\x00\x01" * 50_000 + b"\x40"
    assert outcome(b"\x00\x53\x77" + deep, 0, 0) == "receive"
