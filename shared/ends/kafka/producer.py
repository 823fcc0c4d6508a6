"""
A producer of librdkafka in an event loop, which stops at the first error.

It is idempotent and sends one batch at a time to each broker, and after a batch that is not accepted it sends nothing
more (`enable.gapless.guarantee`): so what a topic has is always the beginning of what a partition was given, and no
later message of a key overtakes an earlier one. What comes while it waits for answers is sent together afterwards.
Messages do not expire in it; the deadline of a call does that, by leaving the producer.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Self

import confluent_kafka

from shared.ends.kafka.answers import LASTING, is_consequence
from shared.ends.kafka.record import Record

_POLL_SECONDS = 0.1
_LARGEST_MESSAGE = 100_000_000
# A broker that restarts is back by then; an outage is reported after it.
_PATIENCE_SECONDS = 10.0
_METADATA_SECONDS = 2.0
_OPTIONS: Mapping[str, object] = {
    "client.id": "busway",
    "linger.ms": 1_000,  # a flush ends it
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "max.in.flight.requests.per.connection": 1,
    "message.timeout.ms": 0,
    "message.max.bytes": _LARGEST_MESSAGE,
    "partitioner": "murmur2_random",  # as the Java clients
    "allow.auto.create.topics": False,
    "topic.metadata.propagation.max.ms": 1_000,
    "reconnect.backoff.max.ms": 2_000,
    "socket.keepalive.enable": True,
    # Event Hubs closes idle connections after four minutes.
    "connections.max.idle.ms": 180_000,
    "metadata.max.age.ms": 180_000,
}
# Its warnings are in the errors; what it would log has names of users.
_SILENT = logging.Logger("kafka", logging.CRITICAL + 1)  # noqa: LOG001 - it is to be found by nobody


_FROM_THE_BROKER = frozenset(("_AUTHENTICATION", "_FATAL"))


class Failure(NamedTuple):
    """Why a message was not accepted."""

    name: str
    """The name of the error, as librdkafka has it."""
    text: str
    partition: int | None = None

    @property
    def is_of_one_message(self) -> bool:
        """Whether the library has refused one message itself, which never was in its queue: the others go on."""
        return self.name == "MSG_SIZE_TOO_LARGE" and self.partition is None


def failure_of(error: Any, partition: int | None = None) -> Failure:
    """
    Return the failure in an *error* of librdkafka.

    A broker can answer with a text of its own, which may quote a record: of its answers only the meaning of their code
    is kept. The names of what the library itself has found begin with an underscore.
    """
    name: str = error.name()
    is_own = name.startswith("_") and name not in _FROM_THE_BROKER
    return Failure(name, error.str() if is_own else confluent_kafka.KafkaError(error.code()).str(), partition)


class KafkaError(Exception):
    """A producer that cannot be opened."""

    def __init__(self, failure: Failure) -> None:
        """Keep the *failure*."""
        super().__init__(f"{failure.name}: {failure.text}")
        self.failure = failure


_NOT_SENT = Failure("_PURGE_QUEUE", "not sent")


class Call:
    """The answers to the records of one call, by their position: None for an accepted one."""

    def __init__(self, positions: Sequence[int]) -> None:
        """Start without answers to the records at these *positions*."""
        self.positions = positions
        self.answers: dict[int, Failure | None] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reports: deque[tuple[int, Failure | None]] = deque()
        self.settle()  # without records it is done

    def report(self, position: int, error: Any, message: Any) -> None:
        """Take a delivery report, in the thread that polls."""
        failure = None if error is None else failure_of(error, message.partition())
        self._reports.append((position, failure))

    def settle(self) -> list[Failure | None]:
        """Put what was reported among the answers, and return it."""
        found = []
        while self._reports:
            position, failure = self._reports.popleft()
            self.answers[position] = failure
            found.append(failure)
        if len(self.answers) == len(self.positions) and not self.done.done():
            self.done.set_result(None)
        return found


class KafkaProducer:
    """Sends to one topic until something fails; it is then `failed`, and a new one is needed."""

    def __init__(self, topic: str) -> None:
        """Send to *topic*; `open` makes it."""
        self.last_error: Failure | None = None
        """The last error of a connection, such as that a broker refuses it."""
        self.failures: Counter[tuple[str, int | None]] = Counter()
        """How many messages have failed, of all calls, by the name of the error and the partition."""
        self.failed = False
        self._down_since: float | None = None
        self._topic = topic
        self._waiting: deque[tuple[Call, Sequence[tuple[int, Record]]]] = deque()
        """What is handed over once there are answers to all that was handed over before."""
        self._calls: set[Call] = set()
        self._serving: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="busway-kafka")
        self._error: type[Exception] = confluent_kafka.KafkaException
        self._client: Any = None

    @classmethod
    async def open(cls, options: Mapping[str, object], topic: str, batch_bytes: int) -> Self:
        """Return a producer with *options* of librdkafka; raises KafkaError for what it does not take."""
        self = cls(topic)
        own = {"batch.size": batch_bytes, "error_cb": self._note, "logger": _SILENT}
        loop = asyncio.get_running_loop()
        try:
            # It waits for the first token of an identity.
            self._client = await loop.run_in_executor(
                self._thread, confluent_kafka.Producer, {**_OPTIONS, **options, **own}
            )
        except self._error as error:
            raise KafkaError(_failure_of(error)) from error
        finally:
            if self._client is None:
                self._thread.shutdown(wait=False)
        return self

    async def leaders(self) -> list[int]:
        """Return the broker of each partition; nothing if there is no such topic, or no broker lets it in."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                found = await loop.run_in_executor(
                    self._thread, partial(self._client.list_topics, self._topic, timeout=_METADATA_SECONDS)
                )
                partitions = found.topics[self._topic].partitions
                return [partitions[partition].leader for partition in sorted(partitions)]
            except self._error:
                # The error of the connection says more, and comes with the poll.
                await loop.run_in_executor(self._thread, self._client.poll, 0)
            if self._is_refused():
                return []

    def produce(self, call: Call, records: Sequence[tuple[int, Record]]) -> None:
        """Send *records* with their positions; the answers come to *call* while the event loop runs."""
        self._waiting.append((call, records))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())

    def _hand_over(self) -> None:
        """Hand over all that waits; together, because it leaves in one request for each partition."""
        while self._waiting:
            call, records = self._waiting.popleft()
            self._calls.add(call)
            for number, (position, record) in enumerate(records):
                if self.failed:
                    call.answers |= {other: _NOT_SENT for other, _ in records[number:]}
                    break
                try:
                    self._client.produce(
                        self._topic,
                        value=record.value,
                        key=record.key,
                        headers=record.headers,
                        on_delivery=partial(call.report, position),
                    )
                except (self._error, BufferError) as error:
                    failure = call.answers[position] = _failure_of(error)
                    if not failure.is_of_one_message:
                        self._fail()

    def abandon(self, call: Call) -> None:
        """Wait no longer for answers to *call*; what is under way may still be accepted."""
        self._calls.discard(call)
        self._waiting = deque(each for each in self._waiting if each[0] is not call)

    async def close(self) -> None:
        """Drop what has no answer, and end its threads."""
        self._fail()
        if self._serving is not None:
            await self._serving
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        # A fatal error is raised again, which adds nothing.
        with contextlib.suppress(confluent_kafka.KafkaException):
            self._client.purge(in_queue=True, in_flight=True)
            self._client.close()

    async def _serve(self) -> None:
        """Wait for delivery reports as long as a call waits for one."""
        loop = asyncio.get_running_loop()
        while self._calls or self._waiting:
            if not self._calls:
                self._hand_over()
            try:
                # A flush does not linger, and ends with the last answer.
                await loop.run_in_executor(self._thread, self._client.flush, _POLL_SECONDS)
            except self._error as error:
                # A fatal error is raised here, and the reports of its messages follow.
                self._note_failure(_failure_of(error))
                self._fail()
            is_refused = self._is_refused()
            for call in tuple(self._calls):
                for failure in call.settle():
                    self._note_answer(failure)
                if is_refused and not call.done.done():
                    call.done.set_result(None)
                if call.done.done():
                    self._calls.discard(call)
            if is_refused:
                self._fail()
            if self.failed:
                # Again, because what was on its way to a broker returns to the queue.
                self._client.purge(in_queue=True, in_flight=False, blocking=False)

    def _is_refused(self) -> bool:
        """Return whether waiting longer does not help: no broker lets it in, or none was there for a while."""
        if self.last_error is not None and self.last_error.name in LASTING:
            return True
        return self._down_since is not None and time.monotonic() > self._down_since + _PATIENCE_SECONDS

    def _note_answer(self, failure: Failure | None) -> None:
        if failure is None:
            self.last_error = self._down_since = None
            return
        self.failures[failure.name, failure.partition] += 1
        self._fail()

    def _fail(self) -> None:
        """Send nothing that is not under way."""
        if not self.failed:
            self.failed = True
            self._client.purge(in_queue=True, in_flight=False, blocking=False)

    def _note(self, error: Any) -> None:
        self._note_failure(failure_of(error))

    def _note_failure(self, failure: Failure) -> None:
        if failure.name == "_ALL_BROKERS_DOWN":
            self._down_since = self._down_since or time.monotonic()
        elif not is_consequence(failure.name):
            self.last_error = failure


def _failure_of(error: Exception) -> Failure:
    if isinstance(error, BufferError):
        return Failure("_QUEUE_FULL", "its buffer is full")
    return failure_of(error.args[0])
