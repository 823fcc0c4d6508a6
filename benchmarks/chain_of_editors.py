"""
The cost of validate, enrich, transcode and encrypt in a row for an order of 1 KB, against the bare library calls.

Editors are added one by one. The pipeline edits batches of 50 messages; the bare calls take what they need out of each
message and put the result back. Both alternate within a round, so that other load slows down both.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import cbor2
from joserfc import jwe
from joserfc.jwk import Key, OctKey
from jsonschema import Draft202012Validator

from benchmarks.measurement import Measurement, report
from benchmarks.order import CONTENT, order
from shared.amqp.values import string
from shared.azure.secrets import SettingSecrets, setting_of
from shared.clock import SystemClock
from shared.config.steps import STEPS
from shared.editors.options import FOLDER, TaskFacts
from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch
from shared.line.editing import Editing
from shared.line.item import Item
from shared.line.states import State
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import BATCH_BYTES, BatchEditor, Editor
from shared.time_limit import DEFAULT_SECONDS

ROUNDS, BATCH = 40, 50
MOST = 1.5
SECONDS = 60.0

SCHEMA = {
    "type": "object",
    "required": ["id", "lines"],
    "properties": {
        "id": {"type": "string"},
        "customer": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
        "lines": {"items": {"properties": {"article": {"type": "string"}, "count": {"type": "integer", "minimum": 1}}}},
    },
}
SEGMENTS = {f"c-{number}": ("gold", "basic")[number % 2] for number in range(1_000)}
KEY: Key = OctKey.generate_key(256, cast("Any", {"kid": "k1"}))
REGISTRY = jwe.JWERegistry()
VALIDATOR = Draft202012Validator(SCHEMA)
HEADER = {"alg": "A256KW", "enc": "A256GCM", "kid": "k1", "cty": "application/cbor"}


def validate(message: Message) -> None:
    """Compare the body with the schema."""
    if list(VALIDATOR.iter_errors(json.loads(message.body or b""))):
        raise SystemExit("the order does not keep to its schema")


def enrich(message: Message) -> None:
    """Put the customer's segment into a property."""
    customer = json.loads(message.body or b"")["customer"]["id"]
    message.set_properties({"segment": string(SEGMENTS[customer])})


def transcode(message: Message) -> None:
    """Write the body as CBOR."""
    message.body = cbor2.dumps(json.loads(message.body or b""))
    message.content_type = "application/cbor"


def encrypt(message: Message) -> None:
    """Encrypt the body."""
    message.body = jwe.encrypt_compact(dict(HEADER), message.body or b"", KEY, registry=REGISTRY).encode()
    message.content_type = "application/jose"


class Link(NamedTuple):
    """A step of the line: its options, and what it wraps."""

    options: Mapping[str, object]
    bare: Callable[[Message], None]


LINE: Mapping[str, Link] = {
    "validate": Link({"schema": "order.json"}, validate),
    "enrich": Link(
        {
            "table": "customers.csv",
            "key": {"body": "$.customer.id"},
            "column": "id",
            "properties": {"segment": "segment"},
        },
        enrich,
    ),
    "transcode": Link({"from": "json", "to": "cbor"}, transcode),
    "encrypt": Link({"key": "k"}, encrypt),
}


def editors(verbs: Sequence[str], folder: Path) -> list[Editor | BatchEditor]:
    """Return the editors of a line."""
    settings = {setting_of("k"): json.dumps({"keys": [KEY.as_dict(private=True)]})}
    facts = TaskFacts("orders", Origin("west", "orders"), settings, SettingSecrets(settings), SystemClock())
    steps = [STEPS[verb].model_validate({verb: LINE[verb].options}, context={FOLDER: folder}) for verb in verbs]
    return [step.editor(facts) for step in steps]


async def edited(line: Sequence[Editor | BatchEditor], messages: Sequence[Message]) -> int:
    """Return how many messages come out of the line."""

    async def ask[T](_: str, question: Callable[[float], Awaitable[T]]) -> T:
        return await question(SECONDS)

    batch = Batch(messages[0].arrival.origin, (), (), datetime.now(UTC))
    batch.ask = ask
    for index, message in enumerate(messages):
        item = Item(b"", message.arrival, index, index)
        item.message = message
        batch.parts.append([item])
    for step in Editing("orders", line, AcceptedSends(), edit_seconds=DEFAULT_SECONDS, batch_bytes=BATCH_BYTES).steps():
        pending = step.run(batch)
        if pending is not None:
            await pending
    return len(batch.waiting(State.RECEIVED))


async def costs(verbs: Sequence[str], folder: Path) -> tuple[float, float]:
    """Return the processor time of the editors and of the bare calls in microseconds, the best of all rounds."""
    line = editors(verbs, folder)
    calls = [LINE[verb].bare for verb in verbs]
    cost = bare = float("inf")
    for _ in range(ROUNDS):
        messages = [order() for _ in range(BATCH)]
        started = time.process_time_ns()
        count = await edited(line, messages)
        cost = min(cost, (time.process_time_ns() - started) / BATCH / 1000)
        if count != BATCH:
            raise SystemExit(f"{' '.join(verbs)}: {count} orders came out, expected {BATCH}")
        messages = [order() for _ in range(BATCH)]
        started = time.process_time_ns()
        for message in messages:
            for call in calls:
                call(message)
        bare = min(bare, (time.process_time_ns() - started) / BATCH / 1000)
    return cost, bare


def main() -> None:
    """Measure and report the line, one more editor each time."""
    line = list(LINE)
    measurements = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "order.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
        rows = "".join(f"{customer},{segment}\n" for customer, segment in SEGMENTS.items())
        (folder / "customers.csv").write_text(f"id,segment\n{rows}", encoding="utf-8")
        for count in range(1, len(line) + 1):
            verbs = line[:count]
            cost, bare = asyncio.run(costs(verbs, folder))
            label = " → ".join(verbs)
            measurements += [
                Measurement(f"line {label}, an order of {len(CONTENT):,} bytes", cost, "µs"),
                Measurement(f"line {label} to the bare library calls", cost / bare, "times", MOST),
            ]
    report(measurements)


if __name__ == "__main__":
    main()
