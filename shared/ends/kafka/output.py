"""
Sends encoded messages to the topics of Kafka brokers, with the order that each key has.

All messages of a call leave together, by several producers, of which each key has one. If a message is not accepted, no
later one with its key is sent, and the answers to those that were held back say so; the next call opens a new producer.
What the library itself finds too large holds back nothing.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from shared.access.identity import credential
from shared.ends.conditions import TOO_LARGE, as_error
from shared.ends.kafka.answers import is_consequence, reaction_to
from shared.ends.kafka.endpoint import KafkaEndpoint, Tokens, client_options
from shared.ends.kafka.partitions import Partitions
from shared.ends.kafka.producer import Call, Failure, KafkaError, KafkaProducer
from shared.ends.kafka.record import HeaderForm, Record, key_of, record_of
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.printable import printable
from shared.protocols import Outgoing

_BATCH_BYTES = 1_000_000
_SMALLEST_BATCH = 16_384
# Event Hubs closes the connection at a request above 1,046,528 bytes, and names no reason
# (azure-event-hubs-for-kafka, CONFIGURATION.md and issue 255). The rest is for what a request has around the records.
_EVENT_HUBS_BYTES = 1_046_528 - 1_024
_LONGEST_TEXT = 200
_UNANSWERED = Failure("_TIMED_OUT", "no answer in time; a partition may have no leader or too few in-sync replicas")

type Answers = list[BuswayError | None]


class KafkaOutput:
    """Sends to the topics of one cluster, with producers for each, opened at the first send and kept."""

    def __init__(
        self,
        site: str,
        endpoint: KafkaEndpoint,
        form: HeaderForm = "text",
        identity: Callable[[], Any] = credential,
    ) -> None:
        """Use *site* as the cluster's name in errors; write headers in the *form*; take tokens from the *identity*."""
        self._site = site
        self._endpoint = endpoint
        self._form: HeaderForm = form
        self._identity = identity
        self._topics: dict[str, _Topic] = {}

    async def send(self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float) -> Answers:
        """Send *messages* to a topic, beside other calls; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        topic = self._topics.get(entity)
        if topic is None:
            options, tokens = client_options(self._endpoint, self._identity)
            topic = self._topics[entity] = _Topic(
                f"{self._site}/{entity}",
                entity,
                self._form,
                options,
                tokens,
                is_event_hubs=self._endpoint.is_event_hubs,
            )
        return await topic.send(messages, deadline)

    async def close(self) -> None:
        """Close all producers."""
        topics, self._topics = self._topics, {}
        for topic in topics.values():
            await topic.close()


class _Topic:
    """A topic, and the producers for it, which are opened when they are needed."""

    def __init__(
        self,
        name: str,
        entity: str,
        form: HeaderForm,
        options: Mapping[str, object],
        tokens: Tokens | None,
        *,
        is_event_hubs: bool,
    ) -> None:
        self._name = name
        self._entity = entity
        self._form: HeaderForm = form
        self._options = {**options, "message.max.bytes": _EVENT_HUBS_BYTES} if is_event_hubs else options
        self._reaction_to = partial(reaction_to, is_event_hubs=is_event_hubs)
        self._tokens = tokens
        self._producers: dict[int, KafkaProducer] = {}
        self._partitions = Partitions()
        self._opening = asyncio.Lock()
        self._alone = asyncio.Lock()
        """Held while there are suspects: records of other calls would join the batch of one."""
        self._batch_bytes = _BATCH_BYTES
        self._smaller = 0
        """The bytes of a batch from now on, unless one of the suspects proves to be too large by itself."""
        self._suspects: set[int] = set()
        """Hashes of the messages of a batch of which a broker refused one; they are sent one by one."""
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, messages: Sequence[Outgoing], deadline: float) -> Answers:
        """Return the answers to *messages*."""
        answers: Answers = []
        while len(answers) < len(messages):
            answers += await self._some(messages[len(answers) :], deadline)
            stop = next((answer for answer in answers if isinstance(answer, TargetUnavailable | TargetRefused)), None)
            if stop is not None:
                return answers + [stop] * (len(messages) - len(answers))
        return answers

    async def close(self) -> None:
        """Close the producers."""
        self._retire(*self._producers.values())
        await asyncio.gather(*self._closing)

    async def _some(self, messages: Sequence[Outgoing], deadline: float) -> Answers:
        """Return the answers to the first of *messages*, which are sent together."""
        if not self._suspects:
            return await self._together(messages, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                await self._alone.acquire()
        except TimeoutError:
            return [TargetUnavailable(f"{self._name}: no answer in time")] * len(messages)
        try:
            return await self._together(self._next(messages), deadline)
        finally:
            self._alone.release()

    def _next(self, messages: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """Return the messages to send together: up to the next suspect, or that alone."""
        for position, message in enumerate(messages):
            if hash(message) in self._suspects:
                return messages[: max(position, 1)]
        return messages

    async def _together(self, messages: Sequence[Outgoing], deadline: float) -> Answers:
        """Return the answers to *messages*, which several producers send beside each other."""
        answers: Answers = [None] * len(messages)
        try:
            async with asyncio.timeout_at(deadline):
                producers = await self._opened(messages)
        except TimeoutError:
            return [TargetUnavailable(f"{self._name}: the producer was not opened in time")] * len(messages)
        except KafkaError as error:
            reason = (self._tokens.error if self._tokens is not None else None) or str(error)
            return [TargetRefused(f"{self._name}: no producer can be opened: {printable(reason)}")] * len(messages)
        calls = [
            (producer, self._produced(producer, positions, messages, answers)) for producer, positions in producers
        ]
        try:
            async with asyncio.timeout_at(deadline):
                for _, call in calls:
                    await asyncio.shield(call.done)
        except TimeoutError:
            late = [(producer, call) for producer, call in calls if not call.done.done()]
            for producer, call in late:
                producer.abandon(call)
                self._retire(producer)
        for producer, call in calls:
            for position, answer in self._answers(messages, call, producer):
                answers[position] = answer
            if producer.failed:
                self._retire(producer)
        self._note_single(messages, answers)
        return answers

    def _produced(
        self, producer: KafkaProducer, positions: Sequence[int], messages: Sequence[Outgoing], answers: Answers
    ) -> Call:
        """Send the messages at *positions*, and put among the *answers* those that are no records."""
        records: list[tuple[int, Record]] = []
        for position in positions:
            try:
                records.append((position, record_of(messages[position], self._form)))
            except MessageRejected as error:
                answers[position] = error
        call = Call([position for position, _ in records])
        producer.produce(call, records)
        return call

    async def _opened(self, messages: Sequence[Outgoing]) -> list[tuple[KafkaProducer, list[int]]]:
        """Return the producers for *messages*, each with the positions of those that it sends."""
        async with self._opening:
            self._retire(*(producer for producer in self._producers.values() if producer.failed))
            if not self._producers:
                # Only now, because a key stays with its producer as long as there is one.
                self._producers[0] = first = await self._open()
                try:
                    self._partitions = Partitions(await first.leaders())
                except asyncio.CancelledError:
                    self._retire(first)
                    raise
            shares: dict[int, list[int]] = {}
            without_key = self._partitions.next_producer()
            for position, message in enumerate(messages):
                key = key_of(message)
                shares.setdefault(self._partitions.producer_of(key) if key else without_key, []).append(position)
            for number in shares:
                if number not in self._producers:
                    self._producers[number] = await self._open()
            return [(self._producers[number], positions) for number, positions in shares.items()]

    async def _open(self) -> KafkaProducer:
        return await KafkaProducer.open(self._options, self._entity, self._batch_bytes)

    def _note_single(self, messages: Sequence[Outgoing], answers: Answers) -> None:
        """Note that a suspect was sent alone, and after the last of them whether batches have to be smaller."""
        if len(messages) != 1 or hash(messages[0]) not in self._suspects:
            return
        if isinstance(answers[0], MessageRejected):
            self._smaller = 0
        if not isinstance(answers[0], TargetUnavailable | TargetRefused):
            self._suspects.discard(hash(messages[0]))
        if not self._suspects and self._smaller:
            self._batch_bytes, self._smaller = max(self._smaller, _SMALLEST_BATCH), 0
            self._retire(*self._producers.values())

    def _retire(self, *producers: KafkaProducer) -> None:
        """Close producers that are not used again, without waiting for it."""
        for number, producer in list(self._producers.items()):
            if producer in producers:
                del self._producers[number]
                task = asyncio.create_task(producer.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    def _answers(
        self, messages: Sequence[Outgoing], call: Call, producer: KafkaProducer
    ) -> Iterator[tuple[int, BuswayError | None]]:
        """Yield the error of each message of a call, and note how the next attempt finds a refused one of several."""
        failures = [answer for answer in call.answers.values() if answer is not None]
        causes = [failure for failure in failures if not (failure.is_of_one_message or is_consequence(failure.name))]
        cause = causes[0] if causes else producer.last_error
        is_refused = not causes and cause is not None and self._reaction_to(cause.name).error is TargetRefused
        for position in call.positions:
            failure = call.answers.get(position, producer.last_error or _UNANSWERED)
            if is_refused and failure is not None:
                failure = cause  # the broker refuses the client, before any message
            if failure is _UNANSWERED:
                yield position, TargetUnavailable(f"{self._name}: {_UNANSWERED.text}")
            elif failure is None:
                yield position, None
            elif is_consequence(failure.name):
                text = _UNANSWERED.text if cause is None else _text(cause)
                yield position, TargetUnavailable(f"{self._name}: held back behind another message: {text}")
            else:
                answer = as_error(
                    self._reaction_to(failure.name), self._name, _text(failure), KafkaFailed(failure.name)
                )
                count = producer.failures[failure.name, failure.partition]
                if isinstance(answer, MessageRejected) and count > 1:
                    answer = TargetUnavailable(f"{self._name}: one of {count} messages is refused, {_text(failure)}")
                yield position, answer
        self._note_refused(messages, call, producer)

    def _note_refused(self, messages: Sequence[Outgoing], call: Call, producer: KafkaProducer) -> None:
        for (name, partition), count in producer.failures.items():
            if count == 1 or is_consequence(name) or self._reaction_to(name).error is not MessageRejected:
                continue
            batch = [messages[at] for at, answer in call.answers.items() if answer and answer[::2] == (name, partition)]
            self._suspects.update(map(hash, batch))
            if self._reaction_to(name) is TOO_LARGE:
                size = sum(len(message.content) for message in batch)
                self._smaller = min(size, self._batch_bytes) // 2 if batch else self._smaller


class KafkaFailed(Exception):
    """An error of Kafka, by its name."""


def _text(failure: Failure) -> str:
    return printable(f"{failure.name}: {failure.text}"[:_LONGEST_TEXT])
