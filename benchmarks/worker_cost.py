"""
Worker CPU per copied message, from the trigger's data to the encoded batch.

All functions run in one worker on the same messages: 1 KB body, 5 application properties, batches of 100 unless the
row says otherwise. The figures with bars are those of the machine for which the bars were set: `measurement.yardstick`
runs beside them. The functions get what Azure's host delivers to an SDK type, without the trigger metadata of messages.
Rounds alternate, and the best round of each tenth of the messages counts, because other processes can only add time.
With metrics and spans, the figure includes the call of an exporter, not the export.
"""

import asyncio
import itertools
import math
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.measurement import YARDSTICK_MICROSECONDS, Measurement, report, yardstick
from host.worker import Attempt, EmbeddedWorker, Function
from host.worker_input import Input, service_bus_input
from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections, data
from shared.amqp.values import NULL, TRUE, Value, double, int_, long, string, symbol, timestamp, uint
from shared.amqp.values import uuid as amqp_uuid
from shared.ends.azure_amqp.raw_link import Delivery
from shared.line.accepted_sends import REMEMBERED_SENDS

ROUNDS = 5
PARTS = 10
# More messages than the pipeline remembers as accepted; otherwise the second round would send none of them.
MESSAGES = REMEMBERED_SENDS + 2_000


class Shape(NamedTuple):
    """A function and its input."""

    function: str
    batch: int = 100
    properties: int = 5
    traced: bool = False


PLAIN, ROUTED = Shape("one_rule"), Shape("two_rules")
JOURNALLED = Shape("journalled")
MEASURED, TRACED = Shape("measured"), Shape("measured", traced=True)
BATCHES = [Shape("one_rule", batch) for batch in (10, 1000)]
PROPERTIES = [Shape("one_rule", properties=properties) for properties in (0, 50)]


def message(number: int, now: int, count: int, *, traced: bool = False) -> bytes:
    """Return an encoded message as delivered, with *count* properties; a *traced* one has a trace context."""
    annotations = {
        "x-opt-enqueued-time": timestamp(now),
        "x-opt-sequence-number": long(number),
        "x-opt-locked-until": timestamp(now + 60_000),
        "x-opt-enqueue-sequence-number": long(0),
        "x-opt-message-state": int_(0),
    }
    named = {
        "order": string("4711"),
        "amount": int_(19_900),
        "due": timestamp(now),
        "trace": amqp_uuid(uuid.uuid4()),
        "weight": double(1.5),
        **{f"property-{number}": string(f"value {number}") for number in range(5, count)},
    }
    properties = dict(itertools.islice(named.items(), count))
    if traced:
        properties["Diagnostic-Id"] = string(f"00-{uuid.uuid4().hex}-{number + 1:016x}-01")
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
            b"\x00\x53\x74",
            [encode(string(name)) + encode(value) for name, value in properties.items()],
            len(properties),
        ),
        body=data(b"x" * 1024),
    ).encode()


async def cpu_per_message(worker: EmbeddedWorker, function: Function, inputs: Sequence[Input], messages: int) -> float:
    """Return the process's CPU time per message in microseconds; exit if an invocation fails."""
    started = time.process_time()
    for each in inputs:
        invocation = await worker.invoke(Attempt(function, each.data, each.metadata, "run"))
        if not invocation.succeeded:
            sys.exit(f"{function.name} failed: {invocation.error}")
    return (time.process_time() - started) / messages * 1e6


async def main() -> None:
    """Measure all functions in turn and report what each took in its best rounds."""
    worker = EmbeddedWorker()
    functions = {
        function.name: function for function in await worker.start(Path(__file__).parent.resolve() / "worker_app")
    }
    now = round(time.time() * 1000)
    shapes = [PLAIN, ROUTED, JOURNALLED, MEASURED, TRACED, *BATCHES, *PROPERTIES]
    inputs = {shape: list(_inputs(functions[shape.function], shape, now)) for shape in shapes}
    best: defaultdict[Shape | None, list[float]] = defaultdict(lambda: [math.inf] * PARTS)
    for _ in range(ROUNDS):
        best[None] = [min(each, yardstick()) for each in best[None]]
        for shape, part in itertools.product(shapes, range(PARTS)):
            some = inputs[shape][part::PARTS]
            cost = await cpu_per_message(worker, functions[shape.function], some, len(some) * shape.batch)
            best[shape][part] = min(best[shape][part], cost)
    worker.stop()
    costs = {shape: fmean(parts) for shape, parts in best.items()}
    slowness = costs[None] / YARDSTICK_MICROSECONDS
    batches, properties = ([costs[each] for each in (PLAIN, *group)] for group in (BATCHES, PROPERTIES))
    report(
        [
            Measurement("copy with one rule: worker CPU per message", costs[PLAIN] / slowness, "µs", 30),
            Measurement(
                "copy with two routes, rules and actions: worker CPU per message", costs[ROUTED] / slowness, "µs", 40
            ),
            Measurement(
                "copy with one rule and the journal: worker CPU per message", costs[JOURNALLED] / slowness, "µs", 40
            ),
            Measurement("this machine: times the processor time of the bars'", slowness, "times"),
            Measurement("copy with metrics and spans: worker CPU per message", costs[MEASURED], "µs"),
            Measurement("copy with a span for every message: worker CPU per message", costs[TRACED], "µs"),
            Measurement("copy: dearest to cheapest of batches of 10, 100, 1,000", _spread(batches), "times", 2),
            Measurement("copy: dearest to cheapest of 0, 5, 50 properties", _spread(properties), "times", 2),
        ]
    )


def _inputs(function: Function, shape: Shape, now: int) -> Iterator[Input]:
    for start in range(0, MESSAGES, shape.batch):
        numbers = range(start, start + shape.batch)
        batch = [
            Delivery(number, uuid.uuid4().bytes, message(number, now, shape.properties, traced=shape.traced))
            for number in numbers
        ]
        yield service_bus_input(function, batch, now, wire=False)


def _spread(costs: Sequence[float]) -> float:
    return max(costs) / min(costs)


if __name__ == "__main__":
    asyncio.run(main())
