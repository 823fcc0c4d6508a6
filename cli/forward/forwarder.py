"""Takes the records of a topic, sends them to a hub, and lets the group go on."""

import asyncio
import base64
import itertools
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

import typer

from cli.forward.batch import Batch, Records, Taken, taken
from cli.kafka_consumer import GroupReader, taken_record
from cli.places import Place
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.states import Stage
from shared.printable import printable
from shared.protocols import Flush, Outcome, Output

_MOST_RECORDS = 500
_TAKE_SECONDS = 0.2
_SEND_SECONDS = 30.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
# So long a broker may deliver nothing of what it has, because it throttles or because a transaction is open.
_THROTTLED_SECONDS = 120.0


@dataclass
class Forwarder:
    """
    Sends the records of a topic to a hub; a partition goes on when all that was read of it has its result.

    The journal has what was received before anything is sent, and the outcomes before the group goes on.
    """

    topic: Place
    hub: Place
    group: str
    _: KW_ONLY
    idle: float | None
    """The seconds without a record after which it ends."""
    site: str
    """The cluster in the stamps of messages."""
    output: Output
    reject: Callable[[str], None]
    """Writes a rejected record as a line."""
    records: Records
    is_stopped: bool = False
    """It ended because of `stop`, with nothing in hand."""
    sent: int = 0
    rejected: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _limit: asyncio.Timeout = field(default_factory=partial(asyncio.timeout_at, None))
    _in_hand: Batch | None = None
    _waits_for: str = ""
    _is_event_hub: bool = False
    _is_stopping: bool = False

    def stop(self, seconds: float) -> None:
        """Make `run` end after the batch in hand, or after *seconds*; call it in the event loop."""
        self._is_stopping = True
        if self._in_hand is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    async def run(self) -> None:
        """
        Forward until stopped or cancelled, or until no record has come for a while.

        If the time of a stop ends before the batch does, it prints what is not committed, and raises typer.Exit.
        """
        # librdkafka must not be closed while another thread is in it.
        with ThreadPoolExecutor(1, thread_name_prefix="busway-forward") as thread:
            topic, loop = self.topic, asyncio.get_running_loop()
            setting = topic.connection.setting
            reader = GroupReader(str(topic), setting, os.environ, topic.path, self.group, report=_print_error)
            self._is_event_hub = reader.is_event_hub

            async def waiting[T](function: Callable[..., T], *arguments: object) -> T:
                return await loop.run_in_executor(thread, function, *arguments)

            try:
                async with self._limit:
                    await self._forward(reader, waiting)
            except TimeoutError as error:
                if not self._limit.expired():
                    raise
                self.is_stopped = self._in_hand is None  # the batch ended just before its time did
                if self._in_hand is not None:
                    found = self._in_hand.uncommitted(reader.lost)
                    _print_error(f"{topic}: {found}; stopped while it waited for {self._waits_for}")
                    raise typer.Exit(1) from error
            finally:
                await waiting(reader.close)
                await self.output.close()

    async def _forward(self, reader: GroupReader, waiting: Callable[..., Any]) -> None:
        quiet_since = time.monotonic()
        while True:
            records = [taken_record(each) for each in await waiting(reader.take, _MOST_RECORDS, _TAKE_SECONDS)]
            if self._is_stopping:
                self.is_stopped = True
                return  # nothing has happened with these records
            now = time.monotonic()
            if records or not reader.has_seen_the_end:
                quiet_since = now
            if not records:
                passed = reader.passed()
                if passed:
                    # Otherwise markers of transactions, once they are deleted, would be reported as unread records.
                    await waiting(reader.commit, passed)
                if self.idle is not None and now - quiet_since >= self.idle:
                    if not await waiting(reader.is_behind):
                        return
                    if now - quiet_since >= self.idle + _THROTTLED_SECONDS:
                        _print_error(f"{self.topic}: ends, although the brokers keep records that they do not deliver")
                        return
                continue
            messages = []
            for record in records:
                journal, topic = self.records.journal, self.topic.path
                found, error = taken(record, self.site, topic, journal, is_event_hub=self._is_event_hub)
                if error is not None:
                    self._set_aside(found, error)
                messages.append(found)
            self._in_hand = Batch(messages, self._numbers)
            await self._process(self._in_hand, reader, waiting)
            self._in_hand = None

    async def _process(self, batch: Batch, reader: GroupReader, waiting: Callable[..., Any]) -> None:
        """Send a batch, and let the group go on."""

        async def hold(end: str, attempt: Callable[[], Awaitable[BuswayError | None]]) -> None:
            self._waits_for, pause = f"an answer of {end}", _SHORTEST_PAUSE
            while (error := await attempt()) is not None:
                self._waits_for = f"{end}: {printable(str(error))}"
                _print_error(f"waits for {self._waits_for}; again in {pause:.0f} s")
                was_stopping = self._is_stopping
                # A stop ends the pause once.
                await waiting(reader.wait, pause, lambda was=was_stopping: self._is_stopping and not was)
                pause = _SHORTEST_PAUSE if self._is_stopping else min(2 * pause, _LONGEST_PAUSE)

        await hold("the journal", partial(_written, batch.received(self.records)))
        # The member that has a lost partition now sends it.
        await hold("the hub", lambda: self._send(batch.unsent(reader.lost)))
        await hold("the journal", partial(_written, batch.decided(self.records)))
        await hold("the topic", lambda: waiting(reader.commit, batch.next_offsets()))

    async def _send(self, messages: Sequence[Taken]) -> BuswayError | None:
        """Return why some must be sent again, None if all have their outcome."""
        if not messages:
            return None
        outgoing = [message.outgoing for message in messages]
        answers = await self.output.send(self.hub.path, outgoing, timeout_seconds=_SEND_SECONDS)
        reason = None
        for message, answer in zip(messages, answers, strict=True):
            if answer is None:
                message.outcome = Outcome.SENT
                self.sent += 1
            elif isinstance(answer, MessageRejected):
                message.reject(answer, Stage.SENT)
                self._set_aside(message, answer)
            else:
                reason = reason or answer
        return reason

    def _set_aside(self, message: Taken, error: MessageRejected) -> None:
        place = {"topic": self.topic.path, "partition": message.partition, "offset": message.offset}
        fault = {"reason": error.reason, "description": error.description}
        self.reject(json.dumps({**place, **fault, "message": base64.b64encode(message.outgoing.content).decode()}))
        self.rejected += 1


async def _written(flushes: list[Flush]) -> BuswayError | None:
    """Write to the journal; return why a flush was not written, and leave those in the list."""

    async def written(flush: Flush) -> BuswayError | None:
        try:
            await flush()
        except (TargetUnavailable, TargetRefused) as error:
            return error
        return None

    errors = await asyncio.gather(*(written(flush) for flush in flushes))
    flushes[:] = [flush for flush, error in zip(flushes, errors, strict=True) if error is not None]
    return next(filter(None, errors), None)


def _print_error(line: str) -> None:
    typer.echo(line, err=True)
