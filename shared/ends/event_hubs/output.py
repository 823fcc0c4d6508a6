"""
Encoded events to Event Hubs, in batches per partition key or to a named partition.

Events that must keep their order are a series: those of one partition key, or all that go to one named partition. A
series sends a batch when the one before it has been accepted. All series of a call are concurrent, and one that must
wait delays only itself.

Calls are concurrent too, each on a link of its own. What has an order to keep is never in two calls at once: the host
hands out the next batch of a partition, or of a session, when the one before it is settled.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from azure.eventhub.aio import EventHubProducerClient

from shared.amqp.peer_error import shown_condition
from shared.ends.batches import batch_size, encode_batch, envelope_of, split_by_size
from shared.ends.conditions import (
    SIZE_EXCEEDED,
    UNAUTHORIZED,
    UNREACHABLE,
    about_the_link,
    as_error,
    reaction_to,
)
from shared.ends.event_hubs.internals import (
    AUTHENTICATION_ERRORS,
    WORLD_ERRORS,
    PublisherLink,
    condition_of,
)
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing

# Batches in flight at once on a link: enough to hide the round trip, few enough to bound the memory.
SERIES_AT_ONCE = 64
# Each has a connection: as many calls as there are usually partitions, and few of the namespace's connections.
CALLS_AT_ONCE = 16

_CLOSE_SECONDS = 1.0
# The service closes a connection that is silent for 240 s, and ends an idle link (azure-sdk-for-java 10682).
_IDLE_SECONDS = 180.0

type OpenLink = Callable[[EventHubProducerClient, str | None], Awaitable[PublisherLink]]
"""Opens a link to the client's hub, or to a partition of it."""


class EventHubsOutput:
    """Sends to the hubs of one namespace, with a client for each hub, which is opened at the first event and kept."""

    def __init__(
        self,
        site: str,
        open_client: Callable[[str], EventHubProducerClient],
        open_link: OpenLink = PublisherLink.open,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Use *site* as the namespace's name in errors; *open_client* takes the name of a hub; *now* gives seconds."""
        self._site = site
        self._open_client = open_client
        self._open_link = open_link
        self._now = now
        self._clients: dict[str, EventHubProducerClient] = {}
        self._pools: dict[tuple[str, str | None], PublisherPool] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a hub, in order per partition key or named partition; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        by_partition: dict[str | None, list[int]] = {}
        for position, message in enumerate(messages):
            by_partition.setdefault(message.partition, []).append(position)
        answered = await asyncio.gather(
            *(
                self._pool(entity, partition).send([messages[position] for position in positions], deadline)
                for partition, positions in by_partition.items()
            )
        )
        answers: list[BuswayError | None] = [None] * len(messages)
        for positions, part in zip(by_partition.values(), answered, strict=True):
            for position, answer in zip(positions, part, strict=True):
                answers[position] = answer
        return answers

    async def close(self) -> None:
        """Close all links and clients."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    def _pool(self, hub: str, partition: str | None) -> "PublisherPool":
        pool = self._pools.get((hub, partition))
        if pool is None:
            if hub not in self._clients:
                self._clients[hub] = self._open_client(hub)
            where = f"{self._site}/{hub}" if partition is None else f"{self._site}/{hub}/Partitions/{partition}"
            pool = self._pools[hub, partition] = PublisherPool(
                where,
                partial(self._open_link, self._clients[hub], partition),
                is_named=partition is not None,
                now=self._now,
            )
        return pool


@dataclass(slots=True)
class _Series:
    """Events that keep their order, by their positions in the call, in runs that fit a batch each."""

    envelope: bytes
    """What a batch repeats: the partition key."""
    positions: list[int] = field(default_factory=list)
    runs: deque[list[int]] = field(default_factory=deque)


class PublisherPool:
    """The links to one hub, or to one named partition of it: as many as there are calls at once."""

    def __init__(
        self,
        where: str,
        open_link: Callable[[], Awaitable[PublisherLink]],
        *,
        is_named: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call the place *where* in errors; *is_named*: it is a named partition."""
        self._make = partial(Publisher, where, open_link, is_named=is_named, now=now)
        self._all: list[Publisher] = []
        self._idle: list[Publisher] = []
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE)

    async def send(self, messages: Sequence[Outgoing], deadline: float) -> list[BuswayError | None]:
        """Send *messages* on a link that no other call uses; see `Publisher.send`."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._turns.acquire()
        except TimeoutError as error:
            return [self._make().translated(error)] * len(messages)
        # The one used last: without many calls at once, few links stay open.
        publisher = self._idle.pop() if self._idle else self._make()
        if publisher not in self._all:
            self._all.append(publisher)
        try:
            return await publisher.send(messages, deadline)
        finally:
            self._idle.append(publisher)
            self._turns.release()

    async def close(self) -> None:
        """Close all links."""
        publishers, self._all, self._idle = self._all, [], []
        for publisher in publishers:
            await publisher.close()


class Publisher:
    """A link to one hub, or to one named partition of it; one call at a time."""

    def __init__(
        self,
        where: str,
        open_link: Callable[[], Awaitable[PublisherLink]],
        *,
        is_named: bool,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call the place *where* in errors; *is_named*: it is a named partition."""
        self._where = where
        self._open_link = open_link
        self._is_named = is_named
        self._now = now
        self._used_at = 0.0
        self._link: PublisherLink | None = None

    async def send(self, messages: Sequence[Outgoing], deadline: float) -> list[BuswayError | None]:
        """Return the error for each message, None if it was sent; *deadline* is a time of the event loop."""
        answers: dict[int, BuswayError | None] = {}
        obstacle: BuswayError | None = None
        if self._now() - self._used_at > _IDLE_SECONDS:
            await self.close()
        try:
            await self._send_all(messages, deadline, answers)
        except (TargetUnavailable, TargetRefused) as error:
            await self.close()
            obstacle = error
        except asyncio.CancelledError:
            await self.close()  # half a frame may have been read
            raise
        finally:
            self._used_at = self._now()
        return [answers.get(position, obstacle) for position in range(len(messages))]

    async def close(self) -> None:
        """Close the link."""
        link, self._link = self._link, None
        if link is not None:
            # The link may have failed already; an error while closing it adds nothing to the one reported.
            with contextlib.suppress(*WORLD_ERRORS):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await link.close()

    async def _send_all(
        self, messages: Sequence[Outgoing], deadline: float, answers: dict[int, BuswayError | None]
    ) -> None:
        """Send until *answers* is complete; raises TargetUnavailable or TargetRefused if it cannot be completed."""
        waiting = self._series(messages, (await self._opened(deadline)).limit, answers)
        at_once = SERIES_AT_ONCE
        while waiting:
            link = await self._opened(deadline)
            sent = [(one, one.runs.popleft()) for one in waiting[:at_once]]
            batches = [encode_batch(one.envelope, [messages[each].content for each in run]) for one, run in sent]
            errors = await link.deliver(batches, deadline)
            unanswered: list[tuple[_Series, list[int]]] = []
            for (one, run), error in zip(sent, errors, strict=True):
                if error is not None and error is link.failure:
                    unanswered.append((one, run))
                else:
                    self._note(one, run, None if error is None else self.translated(error), answers)
            if link.failure is not None:
                await self.close()
                failure = self.translated(link.failure)
                if not isinstance(failure, MessageRejected):
                    raise failure
                at_once = 1  # the hub has not said which of several batches is at fault; one by one, it does
                for one, run in unanswered:
                    if len(unanswered) > 1:
                        one.runs.appendleft(run)
                    else:
                        self._note(one, run, failure, answers)
            waiting = [one for one in waiting if one.runs]

    def _series(
        self, messages: Sequence[Outgoing], limit: int, answers: dict[int, BuswayError | None]
    ) -> list[_Series]:
        """Return *messages* as series; answer those that are too large for the link."""
        by_key: dict[str | None, _Series] = {}
        for position, message in enumerate(messages):
            # A named partition is one series: its events stay in order whatever their keys.
            key = (message.partition_key or None) if not self._is_named else None
            by_key.setdefault(key, _Series(envelope_of(Outgoing(b"", None, None, key)))).positions.append(position)
        for one in by_key.values():
            positions = iter(one.positions)
            for chunk in split_by_size([messages[position] for position in one.positions], limit):
                run = [next(positions) for _ in chunk]
                if len(chunk) == 1 and batch_size(one.envelope, chunk[0].content) > limit:
                    text = f"the event has {len(chunk[0].content)} bytes, expected at most {limit}"
                    answers[run[0]] = MessageRejected(SIZE_EXCEEDED, f"{self._where}: {text}")
                else:
                    one.runs.append(run)
        return [one for one in by_key.values() if one.runs]

    def _note(
        self, one: _Series, run: list[int], answer: BuswayError | None, answers: dict[int, BuswayError | None]
    ) -> None:
        """Record the answer to a run; if an event in it was refused, halve the run until that event is alone."""
        if isinstance(answer, MessageRejected) and len(run) > 1:
            middle = len(run) // 2
            one.runs.extendleft((run[middle:], run[:middle]))
            return
        answers |= dict.fromkeys(run, answer)
        if isinstance(answer, TargetUnavailable | TargetRefused):
            while one.runs:
                answers |= dict.fromkeys(one.runs.popleft(), answer)

    async def _opened(self, deadline: float) -> PublisherLink:
        if self._link is None:
            try:
                async with asyncio.timeout_at(deadline):
                    self._link = await self._open_link()
            except WORLD_ERRORS as error:
                # Most likely a partition that the hub does not have.
                raise about_the_link(self.translated(error), self._where) from error
        return self._link

    def translated(self, error: Exception) -> BuswayError:
        """Return the error of Busway for one that the SDK raised."""
        raised = UNAUTHORIZED if isinstance(error, AUTHENTICATION_ERRORS) else UNREACHABLE
        return as_error(reaction_to(condition_of(error), raised), self._where, _description(error), error)


def _description(error: Exception) -> str:
    condition = condition_of(error)
    return type(error).__name__ + (f" ({shown_condition(condition)})" if condition else "")
