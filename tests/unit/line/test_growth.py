"""What the line does with a message, besides editors and routes, grows with its length and no faster."""

import asyncio
import time
from collections.abc import Callable

import pytest

from shared.amqp.codec import encode
from shared.amqp.sections import data
from shared.amqp.values import Value, described, int_, list_, map_, string, symbol, ulong
from shared.codecs.envelope import Event, encode_event, envelopes
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.ttl import Remaining
from tests.fakes import JournalInMemory, OutputThatAccepts, clock_at_delivery, sleep_by
from tests.messages import ORIGIN, delivered, message

pytestmark = pytest.mark.long

# Memory is slower than a cache, and slower still beside other processes: up to twice as long a byte was seen, and five
# times is allowed. What grows with the square takes 1,024 times as long.
TIMES, MOST = 32, 160
FEW, ENOUGH_SECONDS = 2_500, 0.05


def _nested(depth: int) -> Value:
    value = int_(1)
    for _ in range(depth):
        value = list_([value])
    return value


def _of_body(body: Value | bytes) -> bytes:
    made = message(1)
    made.sections.body = body if isinstance(body, bytes) else b"\x00\x53\x77" + encode(body)
    return made.encode()


def _envelope(count: int, content: bytes, named: dict[str, Value] | None = None) -> bytes:
    events = [encode_event(Event("west/orders", str(number), "service-bus", content)) for number in range(count)]
    return delivered(1, message_id=None, body=envelopes(events, 100_000_000)[0].encode(), named=named)


_CONTENT = Message.received(delivered(1), ORIGIN).encode()
_PARTS = {"repl-reject-part": string("1"), "repl-reject-parts": string("3"), "large": string("x" * 30_000)}

MESSAGES: dict[str, Callable[[int], bytes]] = {
    "application properties": lambda n: delivered(1, named={f"name-{number}": int_(number) for number in range(n)}),
    "names that differ at the end": lambda n: delivered(
        1, named={"x" * 200 + str(number): int_(number) for number in range(n // 10)}
    ),
    "annotations": lambda n: delivered(1, annotated={f"name-{number}": int_(number) for number in range(n)}),
    "sites on the path": lambda n: delivered(1, named={"repl-path": string("site;" * n)}),
    "hops": lambda n: delivered(1, named={"repl-enqueue-time": string("2030;" * n), "repl-sequence": string("1;" * n)}),
    "data sections": lambda n: _of_body(data(b"x") * n),
    "sequence sections": lambda n: _of_body(encode(described(ulong(0x76), list_([int_(1)]))) * n),
    "list in the body": lambda n: _of_body(list_([string("x")] * n)),
    "lists in a list": lambda n: _of_body(list_([_nested(40)] * (n // 40))),
    "map in the body": lambda n: _of_body(map_((symbol(f"key-{number}"), string("x")) for number in range(n))),
    "long id": lambda n: delivered(1, message_id="x" * n * 10),
}
ENVELOPES: dict[str, Callable[[int], bytes]] = {
    "messages": lambda n: _envelope(n // 10, _CONTENT),
    "messages that cannot be read": lambda n: _envelope(n // 10, b"\x00"),
    "messages of a replay with large properties": lambda n: _envelope(n // 10, _CONTENT, _PARTS),
}


def seconds(content: bytes, *, opens: bool) -> float:
    """Return the processor time that a message takes, from so many that a coarse clock does."""
    output = OutputThatAccepts()
    router = Router([Route(Target(output, "east", "orders"))])
    rejects = Target(OutputThatAccepts(), "west", "rejected")
    task = Task("copy", ORIGIN, [], router, rejects, Remaining(), LoopGuard(4), opens_envelopes=opens)
    clock = clock_at_delivery()
    count, started = 0, time.process_time()
    while (took := time.process_time() - started) < ENOUGH_SECONDS:
        asyncio.run(Pipeline(task, JournalInMemory(), clock, sleep_by(clock)).run([content]))
        count += 1
    return took / count


def growth(make: Callable[[int], bytes], *, opens: bool) -> float:
    """Return how many times as long a message takes that is TIMES as large: the least of three, on a shared machine."""
    found = float("inf")
    for _ in range(3):
        found = min(found, seconds(make(TIMES * FEW), opens=opens) / seconds(make(FEW), opens=opens))
        if found < MOST:
            break
    return found


@pytest.mark.parametrize("kind", MESSAGES)
def test_time_grows_with_the_length_of_a_message(kind: str) -> None:
    assert growth(MESSAGES[kind], opens=False) < MOST


@pytest.mark.parametrize("kind", ENVELOPES)
def test_time_grows_with_the_length_of_an_envelope(kind: str) -> None:
    assert growth(ENVELOPES[kind], opens=True) < MOST
