"""Envelopes return the contents that were put in, and any bytes are read as an envelope or rejected."""

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.editors.batch import BatchStep
from shared.editors.split import SplitStep
from shared.errors import MessageRejected
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Joined, Withheld
from tests.fakes import task_facts
from tests.messages import message

ORIGIN = Origin("west", "orders")
FORMATS = st.sampled_from(["json-array", "json-lines", "avro"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=6,
)
WRITTEN = st.builds(
    lambda value, indent, ascii_only: json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(),
    JSON,
    st.sampled_from([None, 2]),
    st.booleans(),
)


def round_trip(kind: str, contents: list[bytes]) -> list[bytes]:
    messages = [message(number, body=content) for number, content in enumerate(contents, 1)]
    batch = BatchStep.model_validate({"batch": {"as": kind}}).editor(task_facts())
    split = SplitStep.model_validate({"split": {"from": kind}}).editor(task_facts())
    found = []
    for result in asyncio.run(batch.edit_batch(messages, timeout_seconds=1)):
        if not isinstance(result, Joined | Withheld | MessageRejected):
            parts = split.edit(Message.received(result[0].encode(), ORIGIN))
            assert not isinstance(parts, Withheld)
            found += [part.body or b"" for part in parts]
    return found


@given(FORMATS, st.lists(WRITTEN, min_size=1, max_size=6))
def test_json_values_survive_an_envelope(kind: str, contents: Any) -> None:
    assert [json.loads(each) for each in round_trip(kind, contents)] == [json.loads(content) for content in contents]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6))
def test_container_returns_every_byte(contents: Any) -> None:
    assert round_trip("avro", contents) == contents
