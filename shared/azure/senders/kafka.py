"""
Sends encoded messages to the topics of Kafka brokers, with the order that each key has.

All messages of a call leave together. If one is not accepted, no later one with its key is sent, and the answers to
those that were held back say so; the next call opens a new producer.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from shared.azure.identity import credential
from shared.azure.senders.conditions import TOO_LARGE, as_error
from shared.azure.senders.kafka_answers import is_consequence, reaction_to
from shared.azure.senders.kafka_endpoint import KafkaEndpoint
from shared.azure.senders.kafka_producer import Call, Failure, KafkaProducer
from shared.azure.senders.kafka_record import HeaderForm, Record, record_of
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.printable import printable
from shared.protocols import Outgoing

_BATCH_BYTES = 1_000_000
_LONGEST_TEXT = 200

type Answers = list[BuswayError | None]


class KafkaOutput:
    """Sends to the topics of one cluster, with a producer for each, opened at the first send and kept."""

    def __init__(self, site: str, endpoint: KafkaEndpoint, form: HeaderForm = "text") -> None:
        """Use *site* as the cluster's name in errors; write headers in the *form*."""
        self._site = site
        self._endpoint = endpoint
        self._form: HeaderForm = form
        self._topics: dict[str, _Topic] = {}

    async def send(self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float) -> Answers:
        """Send *messages* to a topic, beside other calls; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        topic = self._topics.get(entity)
        if topic is None:
            options = self._endpoint.options() | _token_options(self._endpoint)
            topic = self._topics[entity] = _Topic(f"{self._site}/{entity}", partial(KafkaProducer, options, entity))
        answers: Answers = [None] * len(messages)
        records: dict[int, Record] = {}
        for position, message in enumerate(messages):
            try:
                records[position] = record_of(message, self._form)
            except MessageRejected as error:
                answers[position] = error
        for position, answer in zip(records, await topic.send(list(records.values()), deadline), strict=True):
            answers[position] = answer
        return answers

    async def close(self) -> None:
        """Close all producers."""
        topics, self._topics = self._topics, {}
        for topic in topics.values():
            await topic.close()


class _Topic:
    """A topic, and the producer for it, which is opened when it is needed."""

    def __init__(self, name: str, open_producer: Callable[[int], KafkaProducer]) -> None:
        self._name = name
        self._open = open_producer
        self._producer: KafkaProducer | None = None
        self._batch_bytes = _BATCH_BYTES
        self._suspects = 0
        """Messages of a batch of which the broker refused one without saying which; they are sent one by one."""
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, records: Sequence[Record], deadline: float) -> Answers:
        """Return the answers to *records*."""
        answers: Answers = []
        while len(answers) < len(records):
            stop = next((each for each in answers if isinstance(each, TargetUnavailable | TargetRefused)), None)
            if stop is not None:
                return answers + [stop] * (len(records) - len(answers))
            count = 1 if self._suspects else len(records)
            self._suspects = max(self._suspects - 1, 0)
            answers += await self._together(records[len(answers) :][:count], deadline)
        return answers

    async def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            self._retire(self._producer)
        await asyncio.gather(*self._closing)

    async def _together(self, records: Sequence[Record], deadline: float) -> Answers:
        producer = self._producer
        if producer is None or producer.failed:
            if producer is not None:
                self._retire(producer)
            try:
                producer = self._producer = self._open(self._batch_bytes)
            except ValueError as error:
                return [TargetRefused(f"{self._name}: {error}")] * len(records)
        call = Call(records)
        producer.produce(call)
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(call.done)
        except TimeoutError:
            producer.abandon(call)
            self._retire(producer)
        answers = self._answers(call, producer)
        if producer.failed:
            self._retire(producer)
        return answers

    def _retire(self, producer: KafkaProducer) -> None:
        """Close a producer that is not used again, without waiting for it."""
        if self._producer is producer:
            self._producer = None
            task = asyncio.create_task(producer.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _answers(self, call: Call, producer: KafkaProducer) -> Answers:
        """Return the error of each record, and note how the next attempt finds a refused one among several."""
        failures = [each for each in call.answers.values() if each is not None]
        together = Counter((each.name, each.partition) for each in failures)
        causes = [each for each in failures if not is_consequence(each.name)]
        cause = causes[0] if causes else producer.last_error
        answers: Answers = []
        for position in range(len(call.records)):
            failure = call.answers.get(position, cause or Failure("_TIMED_OUT", "no answer in time"))
            if failure is None:
                answers.append(None)
                continue
            if is_consequence(failure.name):
                text = "no answer in time" if cause is None else _text(cause)
                answers.append(TargetUnavailable(f"{self._name}: held back behind another message: {text}"))
                continue
            answer = as_error(reaction_to(failure.name), self._name, _text(failure), KafkaFailed(failure.name))
            count = together[failure.name, failure.partition]
            if isinstance(answer, MessageRejected) and count > 1:
                answer = TargetUnavailable(f"{self._name}: one of {count} messages is refused, {_text(failure)}")
            answers.append(answer)
        self._note_refused(call, together)
        return answers

    def _note_refused(self, call: Call, together: Counter[tuple[str, int | None]]) -> None:
        for (name, partition), count in together.items():
            if count == 1 or is_consequence(name) or reaction_to(name).error is not MessageRejected:
                continue
            if reaction_to(name) is TOO_LARGE:
                # The limit is one of batches: smaller ones fit, until only a message that is too large is alone.
                positions = [at for at, each in call.answers.items() if each and each[::2] == (name, partition)]
                self._batch_bytes = max(sum(call.records[each].size for each in positions) // 2, 1)
            else:
                self._suspects = max(self._suspects, count)


class KafkaFailed(Exception):
    """An error of Kafka, by its name."""


def _text(failure: Failure) -> str:
    return printable(f"{failure.name}: {failure.text}"[:_LONGEST_TEXT])


def _token_options(endpoint: KafkaEndpoint) -> dict[str, object]:
    """Return how librdkafka gets tokens of the app's identity, nothing for another mechanism."""
    if endpoint.mechanism != "OAUTHBEARER":
        return {}
    identity: Any = credential()

    def token(_config: str) -> tuple[str, float]:
        found = identity.get_token(f"https://{endpoint.namespace}/.default")
        return found.token, float(found.expires_on)

    return {"oauth_cb": token}
