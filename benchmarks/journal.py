"""
What the records of a message cost: CPU from the decisions to the bytes of two flushes, and those bytes.

Batches of 100 that differ in everything that differs in life: ids, bodies, a property, the time of arrival, keys. The
bar is for the records alone: the imprints of their content are taken beforehand, and measured beside it without a bar,
since they cost more than the records. What both come to is in the copy with the journal of `benchmarks.worker_cost`,
which has a bar of its own.
"""

import asyncio
import random
import time
from collections.abc import Sequence

from benchmarks.measurement import Measurement, report
from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections, data
from shared.amqp.values import NULL, Value, double, int_, long, string, symbol, timestamp
from shared.journal.record import Role
from shared.journal.sink import Stream
from shared.journal.task import TaskJournal
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Entry, Outcome, Record

BATCH = 100
BATCHES = 30
ROUNDS = 10
ORIGIN = Origin("west", "orders/Subscriptions/replication")


class CountingSink:
    """Counts the bytes of each side."""

    instance = "0a1b2c3d4e5f6071-1795264790000"

    def __init__(self) -> None:
        """Count from nothing."""
        self.sizes = dict.fromkeys(Role, 0)

    async def append(self, stream: Stream, member: bytes) -> None:
        """Count *member*."""
        self.sizes[stream.role] += len(member)

    async def close(self) -> None:
        """Nothing is open."""


def message(number: int, now: int, chance: random.Random) -> Message:
    """Return a message as it was received."""
    annotations = {"x-opt-enqueued-time": timestamp(now), "x-opt-sequence-number": long(number)}
    named = {
        "order": string(f"{chance.randrange(10**6)}"),
        "amount": int_(chance.randrange(10**5)),
        "weight": double(chance.random()),
    }
    fields: list[Value] = [NULL] * 11
    fields[0] = string(chance.randbytes(16).hex())
    fields[3] = string("order placed")
    fields[10] = string(f"customer-{chance.randrange(50)}")
    content = Sections(
        message_annotations=join_map(
            b"\x00\x53\x72", [encode(symbol(name)) + encode(value) for name, value in annotations.items()], 2
        ),
        properties=join_list(b"\x00\x53\x73", [encode(field) for field in fields]),
        application_properties=join_map(
            b"\x00\x53\x74", [encode(string(name)) + encode(value) for name, value in named.items()], 3
        ),
        body=data(chance.randbytes(1024)),
    ).encode()
    return Message.received(content, ORIGIN)


def batches(journal: TaskJournal) -> list[tuple[list[Entry], list[Record]]]:
    """Return what a pipeline hands over of each batch: the entries before the send, the records after it."""
    chance = random.Random(5)
    now, number = 1_795_264_800_000, 4_000
    made = []
    for _ in range(BATCHES):
        entries, records = [], []
        for _ in range(BATCH):
            number, now = number + 1, now + chance.randrange(8)
            each = message(number, now, chance)
            arrived = journal.arriving(each)
            if arrived is None:
                raise RuntimeError("the journal keeps no imprints")
            entries.append(Entry(each.arrival, arrived))
            records.append(
                Record(
                    "orders-west-to-east",
                    each.arrival,
                    arrived.message_id,
                    Outcome.SENT,
                    "east/orders",
                    None,
                    order_key=arrived.order_key,
                    arrived=arrived,
                    departed=arrived,
                )
            )
        made.append((entries, records))
    return made


async def cpu_per_message(journal: TaskJournal, made: Sequence[tuple[list[Entry], list[Record]]]) -> float:
    """Return the process's CPU time per message in microseconds."""
    started = time.process_time()
    for batch_id, (entries, records) in enumerate(made):
        await journal.received(entries, batch_id)()
        await journal.decided(records, batch_id)()
    return (time.process_time() - started) / (len(made) * BATCH) * 1e6


def imprints_per_message(journal: TaskJournal) -> float:
    """Return the process's CPU time per message in microseconds for what is kept of its content."""
    chance = random.Random(5)
    messages = [message(number, 1_795_264_800_000, chance) for number in range(BATCH)]
    started = time.process_time()
    for each in messages:
        arrived = journal.arriving(each)
        if arrived is not None:
            journal.departing(each, arrived)
    return (time.process_time() - started) / BATCH * 1e6


async def main() -> None:
    """Measure the best of some rounds."""
    sink = CountingSink()
    journal = TaskJournal("orders-west-to-east", sink, is_hub=False, is_required=True)
    made = batches(journal)
    await cpu_per_message(journal, made)
    sizes = {role: size / (BATCHES * BATCH) for role, size in sink.sizes.items()}
    cost = min([await cpu_per_message(journal, made) for _ in range(ROUNDS)])
    imprints = min(imprints_per_message(journal) for _ in range(ROUNDS))
    report(
        [
            Measurement("journal: CPU per message of its two records, without its imprints", cost, "µs", 6),
            Measurement("journal: CPU per message of its imprints, as received and as sent", imprints, "µs"),
            Measurement("journal: bytes per message of its two records", sum(sizes.values()), "bytes", 90),
            Measurement("journal: of these before the send", sizes[Role.SOURCE], "bytes"),
        ]
    )


if __name__ == "__main__":
    asyncio.run(main())
