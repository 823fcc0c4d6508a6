"""The batch and split editors: which messages share an envelope, and how an envelope is split."""

import io
import json
import uuid
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest

from shared.amqp.values import NULL, Value, binary, double, int_, long, string, symbol, timestamp
from shared.amqp.values import uuid as amqp_uuid
from shared.editors.content.envelopes import envelope
from shared.errors import MessageRejected
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import EditedTogether, Joined, Withheld
from tests.editing import answers, edited, editor
from tests.messages import ENQUEUED, message

ORIGIN = Origin("west", "orders")


def order(number: int, body: str = "{}", **options: Any) -> Message:
    return message(number, body=body.encode(), **options)


def batched(messages: Sequence[Message], **options: Any) -> Sequence[EditedTogether]:
    return answers(editor("batch", **options), *messages)


def envelopes(messages: Sequence[Message], **options: Any) -> list[Message]:
    found = batched(messages, **options)
    return [each[0] for each in found if not isinstance(each, Joined | Withheld | MessageRejected)]


def split(whole: Message, **options: Any) -> Sequence[Message]:
    parts: Sequence[Message] = editor("split", **options).edit(whole)
    return parts


def bodies(messages: Sequence[Message]) -> list[str]:
    return [(each.body or b"").decode() for each in messages]


def container(schema: dict[str, Any], records: Sequence[dict[str, Any]], codec: str = "null") -> str:
    file = io.BytesIO()
    fastavro.writer(file, schema, records, codec=codec)
    return file.getvalue().decode("latin-1")


# Groups


def test_batch_replaces_the_first_message_and_the_others_are_joined_to_it() -> None:
    results = batched([order(1, "1"), order(2, "2"), order(3, "3")])
    assert [type(result) for result in results] == [tuple, Joined, Joined]
    assert [result.leader for result in results if isinstance(result, Joined)] == [0, 0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_count": 2}, ["[1,2]", "[3]"]),
        ({"max_bytes": 6}, ["[1,2]", "[3]"]),
        ({"within": "PT0.01S"}, ["[1,2]", "[3]"]),
        ({"within": "PT1M"}, ["[1,2,3]"]),
        ({"as": "json-lines"}, ["1\n2\n3\n"]),
    ],
)
def test_an_envelope_is_full_by_count_bytes_or_time(options: dict[str, Any], expected: Any) -> None:
    messages = [order(number, str(number), enqueued=ENQUEUED + (number - 1) ** 3 * 5) for number in (1, 2, 3)]
    assert bodies(envelopes(messages, **options)) == expected


def test_messages_are_joined_in_order_if_session_key_path_and_time_to_live_are_equal() -> None:
    messages = [
        order(1, "1", session_id="a"),
        order(2, "2", session_id="b"),
        order(3, "3", session_id="a"),
        order(4, "4", time_to_live=1000),
        order(5, "5", annotated={"x-opt-partition-key": string("k")}),
        order(6, "6", named={"repl-path": string("north")}),
        order(7, "7"),
        order(8, "8"),
    ]
    found = envelopes(messages)
    assert bodies(found) == ["[1,3]", "[2]", "[4]", "[5]", "[6]", "[7,8]"]
    assert [each.session_id for each in found] == ["a", "b", None, None, None, None]
    assert found[2].time_to_live == 1000
    assert found[3].partition_key == "k"


def test_an_envelope_has_the_properties_that_are_equal_in_all_its_messages() -> None:
    one = order(
        1, named={"region": string("n"), "only": int_(1), "size": int_(3)}, subject=string("order"), to=string("a")
    )
    two = order(2, named={"region": string("n"), "size": long(3)}, subject=string("order"), to=string("b"))
    (found,) = envelopes([one, two])
    assert {name: value.payload for name, value in found.application_properties()} == {"region": "n", "batch-count": 2}
    assert (found.subject, found.to, found.content_type) == ("order", None, "application/json")


def test_an_envelope_continues_the_history_of_its_messages() -> None:
    stamps = [{"repl-path": string("north"), "repl-sequence": string(str(number))} for number in (5, 6)]
    (found,) = envelopes([order(number, named=stamp) for number, stamp in enumerate(stamps, 1)])
    assert {name: value.payload for name, value in found.application_properties()} == {
        "repl-path": "north",
        "repl-sequence": "5",
        "batch-count": 2,
    }


def test_equal_messages_make_the_same_envelope_and_different_ones_another() -> None:
    def envelope_of(*numbers: int) -> Message:
        return envelopes([order(number, "1") for number in numbers], **{"as": "avro"})[0]

    assert envelope_of(1, 2).encode() == envelope_of(1, 2).encode()
    assert envelope_of(1, 2).message_id != envelope_of(1, 3).message_id
    assert envelope_of(1).message_id != envelope_of(1, 2).message_id


@pytest.mark.parametrize("body", ["", "{", '{"a": 1} 2', "nan", '{"a": 1, "a": 2}', "[" * 100_000, "1" * 5000])
def test_a_body_that_is_not_json_is_rejected_and_the_others_are_joined(body: Any) -> None:
    one, two, three = batched([order(1, "1"), order(2, body), order(3, "3")])
    assert isinstance(two, MessageRejected)
    assert isinstance(one, tuple)
    assert three == Joined(0)


def test_a_message_too_large_for_any_envelope_is_rejected_with_the_sizes() -> None:
    (found,) = batched([order(1, '"' + "x" * 100 + '"')], max_bytes=50)
    assert isinstance(found, MessageRejected)
    assert found.description == "an envelope with this message alone has 105 bytes, expected at most 50"


# Parts


def test_lines_and_arrays_are_split_without_rewriting_their_items() -> None:
    assert bodies(split(order(1, '[1.10, {"a" : 1e400},"]"]'))) == ["1.10", '{"a" : 1e400}', '"]"']
    assert bodies(split(order(1, '{"a": 1}\n\n 2 \r\n"x"'), **{"from": "json-lines"})) == ['{"a": 1}', "2", '"x"']


def test_each_part_has_its_own_id_of_at_most_128_characters() -> None:
    assert [each.message_id for each in split(order(1, "[1,2]"))] == [string("m-1/0"), string("m-1/1")]
    (long_one,) = split(order(1, "[1]", message_id="x" * 127))
    assert len(str(long_one.message_id and long_one.message_id.payload)) <= 128
    nameless = [each.message_id for each in split(order(1, "[1,2]", message_id=None))]
    assert None not in nameless
    assert len({str(each and each.payload) for each in nameless}) == 2


def test_a_container_restores_its_messages_unchanged() -> None:
    named: dict[str, Value] = {"n": int_(5), "at": timestamp(7), "id": amqp_uuid(uuid.UUID(int=5)), "text": string("ü")}
    options = {"session_id": "s", "subject": string("order"), "content_type": symbol("application/json")}
    messages = [order(1, "body", named=named, **options), order(2, "\x00", session_id="s")]
    (whole,) = envelopes(messages, **{"as": "avro"})
    parts = split(whole, **{"from": "avro"})
    assert [part.sections.properties for part in parts] == [each.sections.properties for each in messages]
    assert [dict(part.application_properties()) for part in parts] == [named, {}]
    assert bodies(parts) == ["body", "\x00"]


def test_a_container_can_be_read_without_busway() -> None:
    (whole,) = envelopes([order(7, "hello", named={"n": long(5)}, subject=string("order"))], **{"as": "avro"})
    (record,) = fastavro.reader(io.BytesIO(whole.body or b""))
    assert isinstance(record, dict)
    assert (record["message_id"], record["sequence_number"], record["body"]) == ("m-7", 7, b"hello")
    assert (record["subject"], record["properties"]) == ("order", {"n": 5})


@pytest.mark.parametrize("enqueued", [-(2**62), -62_135_596_800_000, 253_402_300_799_999, 253_402_300_800_000])
def test_a_message_of_any_time_goes_through_a_container(enqueued: int) -> None:
    (whole,) = envelopes([order(1, "x", enqueued=enqueued)], **{"as": "avro"})
    assert bodies(split(whole, **{"from": "avro"})) == ["x"]


def test_a_container_written_by_capture_is_split() -> None:
    values = ["long", "double", "string", "bytes"]
    schema = {
        "type": "record",
        "name": "EventData",
        "namespace": "Microsoft.ServiceBus.Messaging",
        "fields": [
            {"name": "SequenceNumber", "type": "long"},
            {"name": "Offset", "type": "string"},
            {"name": "EnqueuedTimeUtc", "type": "string"},
            {"name": "SystemProperties", "type": {"type": "map", "values": values}},
            {"name": "Properties", "type": {"type": "map", "values": [*values, "null"]}},
            {"name": "Body", "type": ["null", "bytes"]},
        ],
    }
    properties = [{"i": 1, "d": 1.5, "s": "x", "b": b"\x00", "n": None, "repl-path": "elsewhere"}, {}, {"i": -(2**63)}]
    head = {"SequenceNumber": 7, "Offset": "1", "EnqueuedTimeUtc": "11/26/2026 10:00:00 PM"}
    head["SystemProperties"] = {"x-opt-enqueued-time": 1795363902079}
    events = [
        {**head, "Properties": each, "Body": body} for each, body in zip(properties, (b"one", None, b""), strict=True)
    ]
    for codec in ("null", "deflate"):
        whole = message(1, body=container(schema, events, codec).encode("latin-1"))
        parts = split(whole, **{"from": "avro"})
        assert [part.body for part in parts] == [b"one", b"", b""]
        assert dict(parts[0].application_properties()) == {
            "i": long(1), "d": double(1.5), "s": string("x"), "b": binary(b"\x00"), "n": NULL
        }  # fmt: skip
        assert [dict(part.application_properties()) for part in parts[1:]] == [{}, {"i": long(-(2**63))}]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_container_of_another_schema_becomes_one_container_for_each_value_which_transcode_reads(codec: str) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "number", "type": ["null", "int", "long"]},
            {"name": "lines", "type": {"type": "array", "items": "string"}},
        ],
    }
    orders: list[dict[str, Any]] = [
        {"number": 1, "lines": ["a", "b"]},
        {"number": None, "lines": []},
        {"number": 2**40, "lines": ["c"]},
    ]
    whole = message(1, body=container(schema, orders, codec).encode("latin-1"), content_type="application/avro")
    parts = split(whole, **{"from": "avro"})
    read = editor("transcode", **{"from": {"format": "avro"}, "to": "json"})
    assert [json.loads(edited(read, part).body or b"") for part in parts] == orders


ARRAYS = {
    "type": "record",
    "name": "Bomb",
    "fields": [{"name": "body", "type": "bytes"}, {"name": "x", "type": {"type": "array", "items": "null"}}],
}
NO_BODY = {"type": "record", "name": "Other", "fields": [{"name": "text", "type": "string"}]}
PLAIN = {"type": "record", "name": "Plain", "fields": [{"name": "body", "type": ["null", "bytes"]}]}
FOREIGN_FIELDS = [{"name": name, "type": "bytes"} for name in ("body", "amqp")]
FOREIGN = {"type": "record", "name": "Message", "fields": FOREIGN_FIELDS}


@pytest.mark.parametrize(
    ("schema", "records", "codec", "end", "problem"),
    [
        (PLAIN, [{"body": b"x"}], "null", 0, "not an Avro container"),
        (PLAIN, [{"body": b"x"}], "null", 4, "an Avro container that is damaged"),
        (PLAIN, [{"body": b"x"}], "null", -20, "damaged"),
        (ARRAYS, [{"body": b"x", "x": 10_000_000}], "null", None, "schema that cannot be used"),
        (NO_BODY, [{"text": "x"}] * 11, "null", None, "more than 10"),
        (NO_BODY, [{"text": "x" * 100}] * 3, "null", -20, "damaged"),
        (PLAIN, [{"body": None}], "null", None, "is not bytes"),
        (PLAIN, [{"body": bytes(17 << 20)}], "deflate", None, "more than 16777216 bytes"),
        (PLAIN, [{"body": b"x"}], "bzip2", None, "unsupported codec"),
        (PLAIN, [{"body": b"x"}] * 11, "null", None, "more than 10"),
        (FOREIGN, [{"body": b"x", "amqp": b"\x01\x02"}], "null", None, "cannot be read"),
        (FOREIGN, [{"body": b"x", "amqp": b"\x00\x53\x75\xa0\x01x"}], "null", None, "other kinds"),
    ],
)
def test_an_invalid_or_malicious_container_is_rejected(
    schema: dict[str, Any], records: list[dict[str, Any]], codec: str, end: int | None, problem: str
) -> None:
    written = [{name: [None] * value if name == "x" else value for name, value in one.items()} for one in records]
    whole = message(1, body=container(schema, written, codec)[:end].encode("latin-1"))
    with pytest.raises(MessageRejected, match=problem):
        split(whole, **{"from": "avro", "max_count": 10})


def test_a_part_of_another_session_than_its_envelope_is_rejected() -> None:
    (whole,) = envelopes([order(1, "x", session_id="a")], **{"as": "avro"})
    whole.session_id = "b"
    with pytest.raises(MessageRejected, match="another session"):
        split(whole, **{"from": "avro"})


@pytest.mark.parametrize("name", ["json-array", "json-lines", "avro"])
def test_an_envelope_is_not_larger_than_estimated(name: Any) -> None:
    kind = envelope(name)
    entries = [kind.entry(order(number, f'"{"x" * number}"', named={"n": int_(number)})) for number in range(50)]
    assert len(kind.joined(entries)) <= kind.overhead + sum(entry.size for entry in entries)
