"""
A queue or topic that messages are sent to, and what it takes as one batch.

1. A message that is sent alone leaves as it is, not as a batch of one.
2. A partitioned queue or topic takes batches of one key only, and with duplicate detection none at all
   (Azure/azure-sdk-for-python issues 21955, 36333). It is recognized by its answer. From then on keys, or messages
   without one, are under way side by side, so that the round trip stays full.
3. An internal error can be overload, or a message that the service cannot store, which it does not name
   (Azure/azure-sdk-for-net issue 15325). A batch that has it again is sent message by message, as soon as one of
   the first few is accepted. A message that has it ten times is at fault if the service has accepted many others since;
   while it accepts nothing, none is.
4. The service ends a link that nobody has used for ten minutes: it is opened again before that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from itertools import chain

from azure.core.exceptions import AzureError

from shared.ends.azure_amqp.encoded_transfer import ONE_MESSAGE, EncodedMessage
from shared.ends.batches import LARGEST_PROPERTY, encode_batch, envelope_of, largest_property, split_by_size
from shared.ends.conditions import PROPERTY_SIZE_EXCEEDED, REFUSED, SIZE_EXCEEDED, about_the_link
from shared.ends.service_bus.link import SenderLink
from shared.ends.service_bus.send_errors import (
    could_not_process,
    is_not_the_messages_fault,
    needs_a_new_link,
    translated,
)
from shared.ends.service_bus.troubles import Troubles
from shared.errors import BuswayError, MessageRejected, TargetUnavailable
from shared.printable import printable
from shared.protocols import Outgoing

# Azure/azure-service-bus issue 397: 4,500 are taken in the Standard tier.
_MOST_IN_BATCH = 4_000
_MIXED_BATCH = "Batching brokered messages with distinct"
# Enough to hide the round trip, few enough to bound the memory.
_RUNS_AT_ONCE = 64
_IDLE_SECONDS = 540.0
_OLD_LINK_SECONDS = 60.0
_SMALLEST_LIMIT = 64 * 1024
_MOST_PROBES = 8


class _Batching(Enum):
    """What a queue or topic takes as one batch; it is learnt from an answer, as the links of all look alike."""

    ANY = "any messages"
    ONE_KEY = "messages of one session or partition key"
    """It is partitioned."""
    NONE = "none"
    """It is partitioned and detects duplicates."""


class Place:
    """A queue or topic, and the link to it, which is opened when it is needed."""

    def __init__(self, name: str, open_link: Callable[[], Awaitable[SenderLink]]) -> None:
        self.name = name
        self._open_link = open_link
        self._link: SenderLink | None = None
        self._opening = asyncio.Lock()
        self._opened_at = 0.0
        self._used_at = 0.0
        # Batches that were in flight when the service closed the link because of one of them. Until so many have had
        # their answer they are sent one by one, which shows the one.
        self._suspects = 0
        self._named: SenderLink | None = None
        """The last link on which the service has said which batch was at fault."""
        self._alone = asyncio.Lock()
        self._batching = _Batching.ANY
        self._batches, self._troubles = Troubles(), Troubles()

    async def send(self, messages: Sequence[Outgoing], deadline: float) -> list[BuswayError | None]:
        """Send *messages* in order; see `shared.protocols.Output`."""
        problems = {
            position: rejection
            for position, rejection in enumerate(map(self._problem, messages))
            if rejection is not None
        }
        if not problems:
            return await self._send(messages, deadline)
        others = [position for position in range(len(messages)) if position not in problems]
        answers: list[BuswayError | None] = [problems.get(position) for position in range(len(messages))]
        found = await self._send([messages[position] for position in others], deadline) if others else []
        for position, answer in zip(others, found, strict=True):
            answers[position] = answer
        return answers

    async def _send(self, messages: Sequence[Outgoing], deadline: float) -> list[BuswayError | None]:
        try:
            link = await self._opened(deadline)
        except (AzureError, OSError) as error:
            return [about_the_link(translated(self.name, error), self.name)] * len(messages)
        if self._batching is _Batching.NONE:
            return await self._send_runs(messages, self._runs(messages), deadline, self._send_one_by_one)
        if self._batching is _Batching.ONE_KEY:
            runs = self._runs(messages, has_batches=True)
            return await self._send_runs(messages, runs, deadline, self._send_in_batches)
        answers = await self._send_in_batches(messages, deadline, link.limit)
        sent = len(answers)
        if self._batching is not _Batching.ANY and sent < len(messages):
            return answers + await self._send(messages[sent:], deadline)
        return answers + [answers[-1]] * (len(messages) - sent)

    async def close(self) -> None:
        """Close the link."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    # What leaves together

    @staticmethod
    def _runs(messages: Sequence[Outgoing], *, has_batches: bool = False) -> list[Sequence[int]]:
        """
        Return the positions of the messages of each session or partition key, which go in order.

        A message without one is a run of its own, or with batches one run with the others.
        """
        runs: dict[object, list[int]] = {}
        for position, message in enumerate(messages):
            key = message.order_key
            runs.setdefault(position if key is None and not has_batches else key, []).append(position)
        return [*runs.values()]

    async def _send_apart(
        self, batch: Sequence[Outgoing], answer: BuswayError, deadline: float, *, probes: int
    ) -> list[BuswayError | None]:
        """Send a batch message by message: first *probes* of them; if none is accepted, the others get its *answer*."""
        runs = self._runs(batch)
        accepted = self._troubles.accepted
        answers = await self._send_runs(batch, runs[:probes], deadline, self._send_one_by_one)
        others: Sequence[BuswayError | None] = [answer] * len(batch)
        if self._troubles.accepted > accepted:
            others = await self._send_runs(batch, runs[probes:], deadline, self._send_one_by_one)
        for position in chain.from_iterable(runs[probes:]):
            answers[position] = others[position]
        return answers

    async def _send_runs(
        self,
        messages: Sequence[Outgoing],
        runs: Sequence[Sequence[int]],
        deadline: float,
        send: Callable[..., Awaitable[list[BuswayError | None]]],
    ) -> list[BuswayError | None]:
        """Send the messages at the positions of each run in order, several runs at once; None for the others."""
        answers: list[BuswayError | None] = [None] * len(messages)
        free = asyncio.Semaphore(_RUNS_AT_ONCE)

        async def run(positions: Sequence[int]) -> None:
            async with free:
                found = await send([messages[position] for position in positions], deadline)
                if len(found) < len(positions) and not (found and is_not_the_messages_fault(found[-1])):
                    # Meanwhile it was learnt that the entity takes no batches.
                    found += await self._send_one_by_one(
                        [messages[position] for position in positions[len(found) :]], deadline
                    )
            for number, position in enumerate(positions):
                answers[position] = found[min(number, len(found) - 1)]

        await asyncio.gather(*map(run, runs))
        return answers

    async def _send_in_batches(
        self, messages: Sequence[Outgoing], deadline: float, limit: int | None = None
    ) -> list[BuswayError | None]:
        """Send in batches, one after the other; return the answers up to the first that is not a message's fault."""
        if limit is None:
            limit = self._limit
        answers: list[BuswayError | None] = []
        batching = self._batching
        for chunk in split_by_size(messages, limit, _MOST_IN_BATCH):
            found = await self._send_chunk(chunk, deadline)
            answers += found
            if len(found) < len(chunk) or self._batching is not batching:
                break
            if is_not_the_messages_fault(answers[-1]):
                break
        return answers

    async def _send_one_by_one(self, messages: Sequence[Outgoing], deadline: float) -> list[BuswayError | None]:
        """Send without batches, one after the other; return the answers up to the first that is no message's fault."""
        answers: list[BuswayError | None] = []
        for message in messages:
            answers += await self._send_chunk([message], deadline)
            if is_not_the_messages_fault(answers[-1]):
                break
        return answers

    async def _send_chunk(self, chunk: Sequence[Outgoing], deadline: float) -> list[BuswayError | None]:
        """
        Send one batch; if it is refused because of a message in it, halve it until that message is alone.

        Returns no answers for what is to be cut in another way, because the entity does not take such batches.
        """
        problem = await self._too_large(chunk[0], deadline) if len(chunk) == 1 else None
        if problem is not None:
            return [problem]
        batching = self._batching
        answer = await self._deliver(chunk, deadline)
        if len(chunk) == 1:
            return [self._judged(chunk[0], answer)]
        if self._batching is not batching:
            return []
        batch = hash(tuple(message.content for message in chunk))
        if answer is None:
            self._batches.forget(batch)
        elif could_not_process(answer) and (attempts := self._batches.note(batch)) > 1:
            return await self._send_apart(chunk, answer, deadline, probes=min(attempts, _MOST_PROBES))
        if not isinstance(answer, MessageRejected):
            return [answer] * len(chunk)
        middle = len(chunk) // 2
        answers = await self._send_chunk(chunk[:middle], deadline)
        if len(answers) < middle or is_not_the_messages_fault(answers[-1]):
            return answers if len(answers) < middle else answers + [answers[-1]] * (len(chunk) - middle)
        return answers + await self._send_chunk(chunk[middle:], deadline)

    # What cannot be stored

    def _problem(self, message: Outgoing) -> MessageRejected | None:
        """Return why the service cannot process a message, which it would not say."""
        name, length = largest_property(message.content)
        if length <= LARGEST_PROPERTY:
            return None
        text = f"the application property {printable(name)} has {length} bytes, expected at most {LARGEST_PROPERTY}"
        return MessageRejected(PROPERTY_SIZE_EXCEEDED, f"{self.name}: {text}")

    async def _too_large(self, message: Outgoing, deadline: float) -> MessageRejected | None:
        """Return why a message has no room on the link."""
        size, link = len(message.content), self._link
        now = asyncio.get_running_loop().time()
        if link is not None and size > link.largest_message and now > self._opened_at + _OLD_LINK_SECONDS:
            # A link keeps the limit that it was opened with (Azure/azure-service-bus issue 705).
            await self._end(link)
            try:
                link = await self._opened(deadline)
            except (AzureError, OSError):
                return None  # the send reports it
        if link is not None and size > link.largest_message:
            text = f"{self.name}: the message has {size} bytes, expected at most {link.largest_message}"
            return MessageRejected(SIZE_EXCEEDED, text)
        return None

    def _judged(self, message: Outgoing, answer: BuswayError | None) -> BuswayError | None:
        """Return the answer to a message that was sent alone: see 3."""
        sent = hash(message.content)
        if answer is None or not could_not_process(answer):
            self._troubles.forget(sent)
            return answer
        attempts = self._troubles.note(sent)
        if not self._troubles.is_at_fault(sent):
            return answer
        self._troubles.forget(sent)
        return MessageRejected(REFUSED, f"{self.name}: the target could not process the message in {attempts} attempts")

    # The link

    async def _opened(self, deadline: float) -> SenderLink:
        """Return the open link; raises the SDK's errors, and TimeoutError at *deadline*."""
        now = asyncio.get_running_loop().time()
        async with asyncio.timeout_at(deadline), self._opening:
            if self._link is not None and (now > self._used_at + _IDLE_SECONDS or not await self._link.is_usable()):
                await self._end(self._link)
            if self._link is None:
                self._link = await self._open_link()
                self._opened_at = now
            self._used_at = now
            return self._link

    async def _end(self, link: SenderLink) -> None:
        if self._link is link:
            self._link = None
        await link.retire()

    @property
    def _limit(self) -> int:
        return _SMALLEST_LIMIT if self._link is None else self._link.limit

    async def _deliver(self, chunk: Sequence[Outgoing], deadline: float) -> BuswayError | None:
        """Send one batch, or one message as it is; return None if it was accepted, or the error."""
        try:
            if not self._suspects:
                return await self._deliver_now(chunk, deadline)
            async with asyncio.timeout_at(deadline):
                await self._alone.acquire()
            try:
                return await self._deliver_now(chunk, deadline)
            finally:
                self._alone.release()
        except (AzureError, OSError) as error:
            return about_the_link(translated(self.name, error), self.name)

    async def _deliver_now(self, chunk: Sequence[Outgoing], deadline: float) -> BuswayError | None:
        link = await self._opened(deadline)
        if len(chunk) == 1:
            message = EncodedMessage(chunk[0].content, ONE_MESSAGE)
        else:
            message = EncodedMessage(encode_batch(envelope_of(chunk[0]), [message.content for message in chunk]))
        accepted = self._troubles.accepted
        error = await link.deliver(message, deadline)
        self._used_at = asyncio.get_running_loop().time()
        answer = None if error is None else translated(self.name, error)
        if answer is None:
            self._troubles.accepted += 1
        is_lost = error is not None and error is link.failure
        if isinstance(answer, TargetUnavailable) and self._troubles.accepted > accepted and could_not_process(answer):
            answer.retry_after = None  # it processes what others send
        if isinstance(answer, MessageRejected):
            self._learn(str(error))
        if isinstance(answer, MessageRejected) and not is_lost:
            self._named = link
        if isinstance(answer, MessageRejected) and is_lost and (link.lost > 1 or self._named is link):
            self._suspects = max(self._suspects, 0 if self._named is link else link.lost)
            text = "the target closed the link because of another batch"
            if self._suspects:
                text = "the target closed the link because of one of several batches, which are now sent one by one"
            answer = TargetUnavailable(f"{self.name}: {text}")
            answer.__cause__ = error
        elif self._suspects and not needs_a_new_link(answer):
            self._suspects -= 1
        if is_lost or needs_a_new_link(answer):
            await self._end(link)
        return answer

    def _learn(self, text: str) -> None:
        """Learn from the answer to a batch what the entity takes as one."""
        if _MIXED_BATCH in text:
            self._batching = _Batching.NONE if "duplicate detection" in text else _Batching.ONE_KEY
