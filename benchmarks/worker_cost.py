"""
CPU in the worker per copied message, from the trigger's data to the encoded batch.

Both functions run in one worker on the same messages: 1 KB body, 5 application properties, batches of 100. Busway's
gets what Azure's host would hand to an SDK type, the other what the host hands to a stock binding. The rounds
alternate, and the best of each counts: whatever else runs on the machine only adds.
"""

import asyncio
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measurement import Measurement, report
from local.host.raw_link import Delivery
from local.host.shape import Input, service_bus_input
from local.host.worker import Function, Worker
from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections, data
from shared.amqp.values import NULL, TRUE, Value, double, int_, long, string, symbol, timestamp, uint
from shared.amqp.values import uuid as amqp_uuid
from shared.memory import REMEMBERED_SENDS

BATCH = 100
ROUNDS = 12
# More messages than the pipeline remembers, or the second round would find that all of them have been sent.
BATCHES = REMEMBERED_SENDS // BATCH + 20
# The other function is slow enough that a few batches time it well.
NAIVE_BATCHES = 10


def message(number: int, now: int) -> bytes:
    """Return an encoded message as Service Bus delivers it."""
    annotations = {
        "x-opt-enqueued-time": timestamp(now),
        "x-opt-sequence-number": long(number),
        "x-opt-locked-until": timestamp(now + 60_000),
        "x-opt-enqueue-sequence-number": long(0),
        "x-opt-message-state": int_(0),
    }
    properties = {
        "order": string("4711"),
        "amount": int_(19_900),  # a long beyond 32 bits would end the other function with a ValueError
        "due": timestamp(now),
        "trace": amqp_uuid(uuid.uuid4()),
        "weight": double(1.5),
    }
    fields: list[Value] = [NULL] * 11
    fields[0] = string(uuid.uuid4().hex)
    fields[3] = string("order placed")
    fields[6] = symbol("application/json")
    fields[10] = string(f"customer-{number % 7}")
    return Sections(
        header=join_list(b"\x00\x53\x70", [encode(field) for field in (TRUE, NULL, NULL, NULL, uint(0))]),
        message_annotations=join_map(
            b"\x00\x53\x72", [encode(symbol(name)) + encode(value) for name, value in annotations.items()], 5
        ),
        properties=join_list(b"\x00\x53\x73", [encode(field) for field in fields]),
        application_properties=join_map(
            b"\x00\x53\x74", [encode(string(name)) + encode(value) for name, value in properties.items()], 5
        ),
        body=data(b"x" * 1024),
    ).encode()


async def cpu_per_message(worker: Worker, function: Function, inputs: Sequence[Input]) -> float:
    """Return the process's CPU time per message in microseconds; an invocation that failed ends the benchmark."""
    started = time.process_time()
    for each in inputs:
        invocation = await worker.invoke(function, each.data, each.metadata)
        if not invocation.succeeded:
            sys.exit(f"{function.name} failed: {invocation.error}")
    return (time.process_time() - started) / (len(inputs) * BATCH) * 1e6


async def main() -> None:
    """Measure both functions in turn and report the best round of each."""
    worker = Worker()
    functions = {each.name: each for each in await worker.start(Path(__file__).parent.resolve() / "worker_app")}
    now = round(time.time() * 1000)
    deliveries = [
        [Delivery(number, uuid.uuid4().bytes, message(number, now)) for number in range(start, start + BATCH)]
        for start in range(0, BATCHES * BATCH, BATCH)
    ]
    busway_inputs = [service_bus_input(functions["busway"], batch, now, wire=False) for batch in deliveries]
    naive_inputs = [
        service_bus_input(functions["naive"], batch, now, wire=False) for batch in deliveries[:NAIVE_BATCHES]
    ]
    busway, naive = [], []
    for _ in range(ROUNDS):
        busway.append(await cpu_per_message(worker, functions["busway"], busway_inputs))
        naive.append(await cpu_per_message(worker, functions["naive"], naive_inputs))
    worker.stop()
    report(
        [
            Measurement("copy: worker CPU per message", min(busway), "µs", 30),
            Measurement("copy by stock binding and add_message: worker CPU per message", min(naive), "µs"),
            Measurement("copy: times less CPU than that", min(naive) / min(busway), "times", 15, "at least"),
        ]
    )


if __name__ == "__main__":
    asyncio.run(main())
