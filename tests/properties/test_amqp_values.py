import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shared.amqp.codec import decode, decode_all, encode, items_of, pairs_of, plain
from shared.amqp.scan import list_fields, map_entries, skip, text
from shared.amqp.values import KINDS, NULL, TRUE, Malformed, Value, map_, ubyte
from tests import strategies
from tests.fuzz import amqp

around = st.binary(max_size=8)
encoded = strategies.values.map(encode)


@given(strategies.values)
def test_encoded_values_round_trip(value: Value) -> None:
    raw = encode(value)
    decoded = decode_all(raw)
    assert repr(decoded) == repr(value)  # unlike ==, the text tells 1 from True and finds a NaN equal to itself
    assert encode(decoded) == raw


@given(st.sampled_from(sorted(strategies.PAYLOADS)), st.data())
def test_every_format_code_round_trips(code: int, data: st.DataObject) -> None:
    value = data.draw(strategies.of_codes(code))
    raw = encode(value)
    assert raw[0] == code
    decoded = decode_all(raw)
    assert repr(decoded) == repr(value)
    assert decoded.kind == KINDS.get(code, "unknown")
    assert encode(decoded) == raw


@given(encoded, around, around)
def test_end_of_a_value_does_not_depend_on_the_surrounding_bytes(raw: bytes, before: bytes, after: bytes) -> None:
    buffer = before + raw + after
    stop = len(before) + len(raw)
    assert decode(buffer, len(before))[1] == stop
    assert decode(buffer, len(before), stop)[1] == stop
    assert skip(buffer, len(before), stop) == stop


@given(encoded, st.data())
def test_every_truncated_value_is_malformed(raw: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(Malformed):
        decode(raw[:cut])
    with pytest.raises(Malformed):
        decode(raw, 0, cut)
    with pytest.raises(Malformed):
        skip(raw[:cut], 0, cut)
    with pytest.raises(Malformed):
        skip(raw, 0, cut)


@given(strategies.map_values, around)
def test_scanned_entries_are_the_decoded_pairs(value: Value, before: bytes) -> None:
    buffer = before + encode(value)
    entries = map_entries(buffer, len(before), len(buffer))
    keys = [key.payload if key.kind in ("string", "symbol") else None for key, _ in pairs_of(value)]
    assert [key for key, _, _, _ in entries] == keys
    assert [(buffer[start:value_start], buffer[value_start:stop]) for _, start, value_start, stop in entries] == [
        (encode(key), encode(item)) for key, item in pairs_of(value)
    ]


@given(strategies.list_values, around)
def test_scanned_fields_are_the_decoded_items(value: Value, before: bytes) -> None:
    buffer = before + encode(value)
    assert list_fields(buffer, len(before), len(buffer)) == [encode(item) for item in items_of(value)]


@given(strategies.primitives)
def test_text_is_read_from_strings_and_symbols_only(value: Value) -> None:
    raw = encode(value)
    if value.kind in ("string", "symbol", "null"):
        assert text(raw) == value.payload
    else:
        with pytest.raises(Malformed):
            text(raw)


@given(strategies.values)
def test_every_value_has_plain_data_unless_two_keys_of_a_map_have_the_same(value: Value) -> None:
    def kinds(data: object) -> None:
        assert not isinstance(data, tuple) or isinstance(data, Value)
        if isinstance(data, list):
            for item in data:
                kinds(item)
        elif isinstance(data, dict):
            for key, item in data.items():
                assert isinstance(key, Value) or not isinstance(key, tuple)
                kinds(item)

    try:
        data = plain(value)
    except Malformed as error:
        assert error.description == "map: keys of different types have the same plain value, expected different values"  # noqa: PT017 - most values have plain data
    else:
        kinds(data)


def test_keys_with_the_same_plain_value_are_malformed() -> None:
    value = map_([(ubyte(1), NULL), (TRUE, NULL)])
    assert decode_all(encode(value)) == value
    with pytest.raises(Malformed, match="same plain value"):
        plain(value)


@given(strategies.map_values.filter(lambda value: bool(value.payload)), st.data())
def test_a_map_with_a_key_twice_is_malformed(value: Value, data: st.DataObject) -> None:
    pairs = pairs_of(value)
    again = data.draw(st.sampled_from(pairs))[0], NULL
    assume("nan" not in repr(again))  # a NaN equals no other
    doubled = [*pairs]
    doubled.insert(data.draw(st.integers(0, len(pairs))), again)
    with pytest.raises(Malformed, match="same key"):
        decode_all(encode(map_(doubled)))


@given(st.binary(max_size=100) | strategies.damaged(encoded) | encoded)
def test_any_bytes_are_malformed_or_round_trip(raw: bytes) -> None:
    amqp.check_value(raw)


@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_values_and_messages_are_malformed_or_round_trip(seed: int) -> None:
    verdicts = amqp.run(seed, cases=20_000)
    assert verdicts["malformed"] > 1000
    assert verdicts["message"] > 500


def test_the_fuzz_run_finds_a_codec_that_loses_bytes() -> None:
    def forgets_width(value: Value) -> bytes:
        return encode(Value(0xA1, value.payload) if value.code == 0xB1 else value)

    amqp.check(b"\xa1\x01a", forgets_width)
    with pytest.raises(AssertionError):
        amqp.check(b"\xb1\x00\x00\x00\x01a", forgets_width)
    with pytest.raises(AssertionError) as raised:
        amqp.run(1, cases=20_000, encode=forgets_width)
    assert "of seed 1: " in raised.value.__notes__[0]
