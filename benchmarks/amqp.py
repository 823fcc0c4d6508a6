"""
Messages per second to AMQP 1.0 brokers: Busway's output against a hand-written loop, in turns.

Both send orders of 1 KB unsettled, in batches of 250, and have the answer to each message before the next round: one
batch in a round, or eight, as concurrent invocations do. Messages of one session wait for each other's answers in both.
Busway sends a batch without sessions in calls of 200 KB, as the pipeline does.
The loop uses a blocking socket and the frames of `shared/azure/senders`; it has no deadline and does not reconnect.
Columns in microseconds are the processor time of the sender for each message.

    python -m benchmarks.amqp                                                  # the brokers of tools/other-brokers
    python -m benchmarks.amqp amqp://USER:PASSWORD@HOST:PORT /queues/orders    # another
"""

import asyncio
import socket
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

from benchmarks.measurement import Measurement, report
from benchmarks.order import order
from shared.azure.senders import amqp_frames as frames
from shared.azure.senders.amqp import AmqpOutput
from shared.azure.senders.amqp_endpoint import AmqpEndpoint, amqp_endpoint
from shared.line.sending import calls_at_once
from shared.protocols import Outgoing
from tests.other_brokers.activemq import ActiveMQ, Artemis
from tests.other_brokers.rabbitmq import RabbitMQ3, RabbitMQ4
from tests.other_brokers.reading import read_all

_BATCH = 250
_MESSAGES = 10_000
_TURNS = 10
_SECONDS = 60.0


def _batches(sessions: int, at_once: int) -> list[list[Outgoing]]:
    """Return all messages; of batches *at_once*, each has *sessions* of its own, as the source locks them."""
    message = order()
    messages = []
    for number in range(_MESSAGES):
        message.session_id = f"c-{number // _BATCH % at_once}-{number % sessions}" if sessions else None
        messages.append(Outgoing(message.encode(), None, message.session_id, None))
    return [messages[start : start + _BATCH] for start in range(0, _MESSAGES, _BATCH)]


class _Loop:
    """Sends by hand over a blocking socket."""

    def __init__(self, endpoint: AmqpEndpoint, address: str) -> None:
        self._socket = socket.create_connection((endpoint.host, endpoint.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = self._socket.makefile("rb")
        self._socket.sendall(frames.SASL_HEADER)
        self._read.read(8)
        self._frame()
        self._socket.sendall(frames.sasl_init(endpoint.mechanism, endpoint.initial_response(), endpoint.host))
        self._frame()
        self._socket.sendall(frames.AMQP_HEADER)
        self._read.read(8)
        opening = frames.open_frame(f"loop-{uuid4()}", endpoint.host_name) + frames.begin_frame()
        self._socket.sendall(opening + frames.attach_frame("loop", address, "queue"))
        self._next = self._credit = self._largest = 0
        while not self._credit:
            self._handle()

    def send(self, messages: list[Outgoing]) -> None:
        """Send *messages*, those of one session one after the other, and wait until all are accepted."""
        of_session: dict[object, deque[bytes]] = {}
        for position, message in enumerate(messages):
            of_session.setdefault(message.session_id or position, deque()).append(message.content)
        ready = deque(of_session.values())
        waiting: dict[int, deque[bytes]] = {}
        while ready or waiting:
            out: list[bytes] = []
            while ready and self._credit:
                chain = ready.popleft()
                for frame in frames.transfer_frames(self._next, chain.popleft(), self._largest):
                    out += frame
                waiting[self._next] = chain
                self._next += 1
                self._credit -= 1
            if out:
                self._socket.sendall(b"".join(out))
            for number in self._handle():
                chain = waiting.pop(number)
                if chain:
                    ready.append(chain)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _handle(self) -> Iterator[int]:
        """Read a frame; return the deliveries that it accepts."""
        found = self._frame()
        if found is None:
            return iter(())
        if found.code == frames.OPEN:
            self._largest = min(found.number(2, frames.LARGEST_FRAME), frames.LARGEST_FRAME)
        elif found.code == frames.FLOW and found.value(4).payload is not None:
            self._credit = found.number(5, 0) + found.number(6, 0) - self._next
        elif found.code == frames.DISPOSITION:
            state = frames.outcome_of(found.value(4))
            if state is None or state.code != frames.ACCEPTED:
                raise SystemExit(f"not accepted: {state}")
            first = found.number(1, 0)
            last = found.number(2, first)
            if not found.flag(3):
                self._socket.sendall(frames.settled_frame(first, last))
            return iter(range(first, last + 1))
        elif found.code in {frames.DETACH, frames.END, frames.CLOSE}:
            raise SystemExit(f"the broker closed: {found}")
        return iter(())

    def _frame(self) -> frames.Performative | None:
        header = self._read.read(8)
        if len(header) < 8:  # noqa: PLR2004 - the bytes of a frame's header
            raise SystemExit("the broker closed the connection of the loop; expected an answer")
        body = self._read.read(int.from_bytes(header[:4]) - 8)
        return frames.read_performative(body) if body else None


async def _busway(output: AmqpOutput, address: str, batches: list[list[Outgoing]], at_once: int) -> None:
    for start in range(0, len(batches), at_once):
        parts = [part for batch in batches[start : start + at_once] for part in _parts(batch)]
        calls = [output.send(address, part, timeout_seconds=_SECONDS) for part in parts]
        for answers in await asyncio.gather(*calls):
            if any(answers):
                raise SystemExit(f"not sent: {next(filter(None, answers))}")


def _parts(batch: list[Outgoing]) -> list[list[Outgoing]]:
    """Return what the pipeline sends in one call: all of a batch that has an order."""
    if batch[0].session_id:
        return [batch]
    return [[batch[position] for position in call] for call in calls_at_once(batch)]


async def _by_hand(loop: _Loop, batches: list[list[Outgoing]], at_once: int) -> None:
    for start in range(0, len(batches), at_once):
        messages = [message for batch in batches[start : start + at_once] for message in batch]
        await asyncio.to_thread(loop.send, messages)


async def _measure(name: str, url: str, address: str) -> list[Measurement]:
    endpoint = amqp_endpoint(url)
    found = []
    for sessions, at_once in ((0, 1), (0, 8), (50, 1), (50, 8)):
        # A new one, which has opened a second connection only if these batches need it.
        output = AmqpOutput("there", endpoint, {address: "queue"})
        batches = _batches(sessions, at_once)
        rates: dict[str, list[float]] = {"busway": [], "loop": []}
        spent: dict[str, list[float]] = {"busway": [], "loop": []}
        for turn in range(_TURNS + 1):
            # In turns first: a broker may be busier after the other one.
            for sender in ("loop", "busway") if turn % 2 else ("busway", "loop"):
                if sender == "loop":
                    # Its connection is new each time: brokers close one that says nothing while Busway sends.
                    loop = await asyncio.to_thread(_Loop, endpoint, address)
                    rate, cost = await _rate(partial(_by_hand, loop, batches, at_once))
                    loop.close()
                else:
                    rate, cost = await _rate(partial(_busway, output, address, batches, at_once))
                await read_all(url, address, quiet=0.2, capability="queue")
                if turn:  # the first opens connections
                    rates[sender].append(rate)
                    spent[sender].append(cost)
        # Per round: what else runs on the machine slows both senders of one round.
        ratio = statistics.median(map(_quotient, rates["busway"], rates["loop"]))
        beside = {f"{sender}/s": statistics.median(each) for sender, each in rates.items()}
        beside |= {f"{sender} µs": statistics.median(each) for sender, each in spent.items()}
        keys = f"{sessions} sessions" if sessions else "no sessions"
        title = f"{name}, {keys}, {at_once} batch{'es' if at_once > 1 else ''} at once"
        found.append(Measurement(title, ratio, "times the loop", 1.0, "at least", beside))
        await output.close()
    return found


def _quotient(first: float, second: float) -> float:
    return first / second


async def _rate(run: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    started, used = time.perf_counter(), time.process_time()
    await run()
    return _MESSAGES / (time.perf_counter() - started), (time.process_time() - used) / _MESSAGES * 1e6


def main() -> None:
    """Measure at the broker of the command line, or at those that are fetched."""
    if sys.argv[1:]:
        url, address = sys.argv[1:]
        report(asyncio.run(_measure(url.rpartition("@")[2], url, address)))
        return
    for kind in (Artemis, ActiveMQ, RabbitMQ3, RabbitMQ4):
        missing = kind.missing()
        if missing is not None:
            sys.stderr.write(f"{missing}\n")
            continue
        with tempfile.TemporaryDirectory() as folder:
            broker = kind(Path(folder))
            broker.start()
            try:
                report(asyncio.run(_measure(kind.__name__, broker.url, broker.address("benchmark"))))
            finally:
                broker.kill()


if __name__ == "__main__":
    main()
