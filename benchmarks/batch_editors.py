"""
What editors that look at a batch cost for an order of 1 KB, against the bare calls that they wrap.

The bare calls do the least that gives the same messages: read what is needed, and put in what comes of it. Storage
takes no time here. Both get the messages as they have just arrived, and take turns within a round, so that what slows
down the machine slows down both.
"""

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from copy import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.measurement import Measurement, report
from shared.amqp.sections import Sections, data
from shared.amqp.values import double, int_, long, string
from shared.azure.secrets import open_secrets
from shared.clock import SystemClock
from shared.editors.batch import BatchStep
from shared.editors.claim_check import ClaimCheck
from shared.editors.claim_restore import ClaimRestore, ClaimRestoreStep
from shared.editors.deduplicate import Deduplicate, DeduplicateStep
from shared.editors.enrich import EnrichStep
from shared.editors.options import FOLDER, TaskFacts
from shared.editors.split import SplitStep
from shared.editors.state.claims import MEDIA_TYPE, PROPERTY
from shared.editors.state.sent_ids import OwnIds
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import BatchEditor, Outcome
from shared.stores.blobs import Blob, TooLarge, Unchanged
from shared.stores.sqlite_stores import FileBlobs

# The clock of a process with several threads may be some milliseconds off: a round has many batches.
ROUNDS, BATCHES, BATCH = 3, 40, 100
MOST = 1.5
REMEMBERED = 100_000
SECONDS = 60.0

LINES = [
    {"article": f"A-{100 + number}", "name": "Hexagon bolt M8 x 40, zinc plated", "count": number, "price": 10.5}
    for number in range(1, 10)
]
ORDER = {"id": "4711", "customer": {"id": "c-1", "name": "Blue Yonder"}, "lines": LINES, "total": 472.5}
CONTENT = json.dumps(ORDER).encode()
FACTS = TaskFacts("copy", Origin("west", "orders"), {}, open_secrets({}), SystemClock())

type Edit = Callable[[Sequence[Message]], Awaitable[object]]


class Case(NamedTuple):
    """What is done to a batch of 100 by an editor and by bare calls; what makes the batch."""

    name: str
    edit: Edit
    bare: Callable[[Sequence[Message]], object]
    messages: Callable[[], Sequence[Message]]
    most: float = MOST
    """The bar for the cost to that of the bare calls."""


def orders(content: bytes = CONTENT, size: int = BATCH) -> list[Message]:
    """Return messages of a sender of orders."""
    found = []
    for number in range(size):
        arrival = Arrival(Origin("west", "orders"), number, None, 1_900_000_000_123 + number)
        message = Message(Sections(body=data(content)), arrival)
        message.message_id = string(f"order-{number}")
        message.content_type = "application/json"
        message.session_id = "c-1"
        message.set_properties({"country": string("DE"), "priority": long(number), "tenant": string("blue")})
        found.append(message)
    return found


def copies(messages: Sequence[Message]) -> Callable[[], Sequence[Message]]:
    """Return what gives a copy of each message."""
    return lambda: [each.copy() for each in messages]


def by(editor: BatchEditor) -> Edit:
    """Return what gives a batch to an editor and settles it."""

    async def edit(messages: Sequence[Message]) -> None:
        await editor.edit_batch(messages, timeout_seconds=SECONDS)
        await editor.settled([(each.arrival, Outcome.SENT) for each in messages], timeout_seconds=SECONDS)

    return edit


def batch() -> Case:
    """Return the case of 100 orders in one JSON array, against reading, joining and common properties."""

    def bare(messages: Sequence[Message]) -> Message:
        bodies, common = [], dict(messages[0].application_properties())
        for message in messages:
            body = message.body or b""
            json.loads(body)
            if not message.has_message_id or message.session_id != "c-1" or message.partition_key:
                raise SystemExit("one of another group")
            bodies.append(body)
            named = dict(message.application_properties())
            common = {name: value for name, value in common.items() if named.get(name) == value}
        whole = messages[0].copy()
        whole.sections.application_properties = b""
        whole.body = b"[%b]" % b",".join(bodies)
        whole.set_properties({**common, "batch-count": int_(len(bodies))})
        return whole

    editor = BatchStep.model_validate({"batch": {"max_bytes": 10**6}}).editor(FACTS)
    return Case("batch, a JSON array of 100", by(editor), bare, copies(orders()))


def split() -> Case:
    """Return the case of the same array split, against reading it and writing each item."""
    editor = SplitStep.model_validate({"split": {}}).editor(FACTS)
    whole = orders(b"[%b]" % b",".join([CONTENT] * BATCH), 1)

    async def edit(messages: Sequence[Message]) -> None:
        editor.edit(messages[0])

    def bare(messages: Sequence[Message]) -> list[Message]:
        parts = []
        for number, item in enumerate(json.loads(messages[0].body or b"")):
            part = messages[0].copy()
            part.body = json.dumps(item).encode()
            part.message_id = string(f"order-0/{number}")
            part.content_type = "application/json"
            parts.append(part)
        return parts

    return Case("split, a JSON array of 100", edit, bare, copies(whole))


def deduplicate() -> Case:
    """Return the case of new ids, against reading the id and a dict of the latest 100,000, to which it is added."""
    options = DeduplicateStep.model_validate({"deduplicate": {"window": "PT1H", "store": "memory"}}).options
    editor = Deduplicate(options, OwnIds(timedelta(hours=1), REMEMBERED, FACTS.clock))
    seen: OrderedDict[bytes, float] = OrderedDict()

    def bare(messages: Sequence[Message]) -> None:
        now = time.time()
        new: dict[Arrival, bytes] = {}
        for message in messages:
            identity = message.message_id
            key = hashlib.blake2b(str(identity and identity.payload).encode(), digest_size=16).digest()
            if key not in seen:
                new[message.arrival] = key
        for arrival in [each.arrival for each in messages]:
            seen[new.pop(arrival, b"")] = now
            if len(seen) > REMEMBERED:
                seen.popitem(last=False)

    numbers = count()

    def new() -> Sequence[Message]:
        messages = orders()
        for message in messages:
            number = next(numbers)
            message.message_id = string(f"order-{number:08}")
            message.arrival = replace(message.arrival, sequence_number=number)
        return messages

    # The bare calls take two microseconds, and what the editor notes for redeliveries is not among them.
    return Case("deduplicate", by(editor), bare, new, most=2.0)


def enrich(into_body: bool) -> Case:
    """Return the case of a lookup by a value of the body, against a dict with JSON read and, for the body, written."""
    table = {f"c-{number}": {"segment": "gold", "credit": 2500.0} for number in range(1000)}
    options: dict[str, object] = {"table": "t.json", "key": {"body": "$.customer.id"}, "column": "id"}
    if into_body:
        options["body"] = {"into": "$.customer", "set": {"segment": "segment", "credit": "credit"}}
    else:
        options["properties"] = {"segment": "segment", "credit": "credit"}
    with TemporaryDirectory() as folder:
        rows = [{"id": key, **row} for key, row in table.items()]
        Path(folder, "t.json").write_text(json.dumps(rows), encoding="utf-8")
        editor = EnrichStep.model_validate({"enrich": options}, context={FOLDER: Path(folder)}).editor(FACTS)

    def bare(messages: Sequence[Message]) -> None:
        for message in messages:
            body = json.loads(message.body or b"")
            row = table[body["customer"]["id"]]
            if into_body:
                body["customer"].update(row)
                message.body = json.dumps(body).encode()
            else:
                message.set_properties({"segment": string(str(row["segment"])), "credit": double(2500.0)})

    return Case(f"enrich, into {'the body' if into_body else 'properties'}", by(editor), bare, copies(orders()))


class Kept(FileBlobs):
    """A storage that takes no time."""

    def __init__(self) -> None:
        """Keep blobs in a dict."""
        super().__init__(Path("none.db"), "claims")
        self.blobs: dict[str, bytes] = {}

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:  # noqa: ARG002 - required by the protocol
        """Keep a blob."""
        self.blobs[name] = content

    async def read(
        self,
        name: str,
        *,
        limit: int,  # noqa: ARG002 - required by the protocol
        known_version: str | None = None,  # noqa: ARG002 - required by the protocol
    ) -> Blob | Unchanged | TooLarge | None:
        """Return a blob."""
        return Blob(self.blobs[name], "1")


def claim_check() -> Case:
    """Return the case of a claim for each order, against its SHA-256 and the same claim written."""
    kept: dict[str, bytes] = {}

    def bare(messages: Sequence[Message]) -> None:
        for message in messages:
            content = message.body or b""
            digest = hashlib.sha256(content).hexdigest()
            name = f"west/orders/{message.arrival.sequence_number}-{digest[:16]}"
            kept[name] = content
            said = {"claim-check": 1, "container": "c", "blob": name, "size": len(content), "sha256": digest}
            said |= {"form": "data", "content_type": message.content_type}
            message.body = json.dumps(said).encode()
            message.content_type = MEDIA_TYPE
            message.set_properties({PROPERTY: string(name)})

    return Case("claim-check", by(ClaimCheck(Kept(), 0)), bare, copies(orders()))


def claim_restore() -> Case:
    """Return the case of a claim redeemed for each order, against reading it and comparing the SHA-256."""
    storage = Kept()
    results = asyncio.run(ClaimCheck(storage, 0).edit_batch(orders(), timeout_seconds=SECONDS))
    claims = [each[0] for each in results if isinstance(each, tuple) and isinstance(each[0], Message)]

    def bare(messages: Sequence[Message]) -> None:
        for message in messages:
            said = json.loads(message.body or b"")
            content = storage.blobs[said["blob"]]
            if message.application_property(PROPERTY) is None or hashlib.sha256(content).hexdigest() != said["sha256"]:
                raise SystemExit("a claim on something else")
            message.body = content
            message.content_type = said["content_type"]
            message.set_properties({PROPERTY: None})

    options = ClaimRestoreStep.model_validate({"claim-restore": {"setting": "S"}}).options
    return Case("claim-restore", by(ClaimRestore(storage, options)), bare, copies(claims))


async def measured(case: Case) -> tuple[float, float]:
    """Return the processor time of the editor and of the bare calls in microseconds a message, the best of rounds."""
    edited = bare = float("inf")
    for _ in range(ROUNDS):
        batches = [case.messages() for _ in range(BATCHES)]
        started = time.process_time_ns()
        for batch in batches:
            await case.edit(batch)
        edited = min(edited, (time.process_time_ns() - started) / BATCHES / BATCH / 1000)
        batches = [case.messages() for _ in range(BATCHES)]
        started = time.process_time_ns()
        for batch in batches:
            case.bare(batch)
        bare = min(bare, (time.process_time_ns() - started) / BATCHES / BATCH / 1000)
    return edited, bare


def main() -> None:
    """Measure and report every editor's cost and how many times the bare calls' that is."""
    measurements = []
    for case in (batch(), split(), deduplicate(), enrich(False), enrich(True), claim_check(), claim_restore()):
        edited, bare = asyncio.run(measured(case))
        measurements += [
            Measurement(f"editor {case.name}, an order of 1 KB", edited, "µs"),
            Measurement(f"editor {case.name} to the bare calls", edited / bare, "times", case.most),
        ]
    report(measurements)


if __name__ == "__main__":
    main()
