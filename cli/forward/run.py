"""The run of `busway forward`."""

import asyncio
import base64
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import typer

from cli.kafka_consumer import GroupReader
from cli.places import Place
from cli.stack import run_until_signalled
from cli.synced_lines import SyncedLines
from shared.azure.receivers.kafka_message import TakenRecord, message_of
from shared.config.files import load
from shared.config.outputs import open_outputs
from shared.errors import BuswayError, ConfigError, MessageRejected, Problem
from shared.message.metadata import stamp
from shared.printable import printable
from shared.protocols import Outgoing, Output

_MOST_RECORDS = 500
_TAKE_SECONDS = 0.2
_SEND_SECONDS = 30.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class Request(NamedTuple):
    """What was asked for."""

    topic: Place
    hub: Place
    group: str
    rejects: Path
    idle: float | None


class _Taken(NamedTuple):
    """A record that is not sent yet."""

    record: TakenRecord
    outgoing: Outgoing


def forward_and_print(request: Request, folder: Path) -> None:
    """Forward records until a signal or until none comes, and print how many; raises ConfigError."""
    for place, kind in ((request.topic, "kafka"), (request.hub, "event-hubs")):
        if place.connection.kind != kind:
            raise ConfigError([Problem(str(place), f"is of kind {place.connection.kind}, expected {kind}")])
    configuration, alias = load(folder), request.hub.alias
    needed = replace(configuration, connections={alias: configuration.connections[alias]})
    output = open_outputs(needed, os.environ)[alias]
    with _rejects(request.rejects) as rejects:
        forwarding = Forwarding(request, configuration.site(request.topic.alias), output, rejects)
        try:
            run_until_signalled(forwarding.run())
        finally:
            rejected = f", {forwarding.rejected} rejected into {request.rejects}" if forwarding.rejected else ""
            typer.echo(f"{forwarding.sent} forwarded from {request.topic} to {request.hub}{rejected}")


class Forwarding:
    """Sends the records of a topic to a hub; a partition goes on when all that was read of it has its result."""

    def __init__(self, request: Request, site: str, output: Output, reject: Callable[[str], None]) -> None:
        """Call the cluster *site* in the stamps of messages; write each rejected record as a line with *reject*."""
        self._request = request
        self._site = site
        self._output = output
        self._reject = reject
        self.sent = 0
        self.rejected = 0

    async def run(self) -> None:
        """Forward until cancelled, or until no record has come for a while."""
        # librdkafka must not be closed while another thread is in it.
        with ThreadPoolExecutor(1, thread_name_prefix="busway-forward") as thread:
            topic, loop = self._request.topic, asyncio.get_running_loop()
            setting, group = topic.connection.setting, self._request.group
            reader = GroupReader(str(topic), setting, os.environ, topic.path, group, report=_print_error)

            async def waiting[T](function: Callable[..., T], *arguments: object) -> T:
                return await loop.run_in_executor(thread, function, *arguments)

            try:
                await self._forward(reader, waiting)
            finally:
                await waiting(reader.close)
                await self._output.close()

    async def _forward(self, reader: GroupReader, waiting: Callable[..., Any]) -> None:
        quiet_since = time.monotonic()
        while True:
            records = [_record(each) for each in await waiting(reader.take, _MOST_RECORDS, _TAKE_SECONDS)]
            now = time.monotonic()
            if records or not reader.has_seen_the_end:
                quiet_since = now
            if not records:
                if self._request.idle is not None and now - quiet_since >= self._request.idle:
                    return
                continue
            taken, pause = list(self._messages(records)), _SHORTEST_PAUSE
            while taken:
                error, taken = await self._send(taken)
                if error is not None:
                    _print_error(f"{printable(str(error))}; again in {pause:.0f} s")
                    await waiting(reader.wait, pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                # The member that has the partition now sends it.
                taken = [each for each in taken if each.record.partition not in reader.lost]
            await waiting(reader.commit, {each.partition: each.offset + 1 for each in records})

    def _messages(self, records: Sequence[TakenRecord]) -> Iterator[_Taken]:
        for record in records:
            message = message_of(record, self._site, self._request.topic.path)
            try:
                stamp(message)
            except MessageRejected as error:
                self._set_aside(record, message.encode(), error)
            else:
                yield _Taken(record, Outgoing(message.encode(), *message.envelope()))

    async def _send(self, taken: Sequence[_Taken]) -> tuple[BuswayError | None, list[_Taken]]:
        """Return what must be sent again, and why."""
        messages = [each.outgoing for each in taken]
        answers = await self._output.send(self._request.hub.path, messages, timeout_seconds=_SEND_SECONDS)
        left, reason = [], None
        for each, answer in zip(taken, answers, strict=True):
            if answer is None:
                self.sent += 1
            elif isinstance(answer, MessageRejected):
                self._set_aside(each.record, each.outgoing.content, answer)
            else:
                left.append(each)
                reason = reason or answer
        return reason, left

    def _set_aside(self, record: TakenRecord, content: bytes, error: MessageRejected) -> None:
        place = {"topic": self._request.topic.path, "partition": record.partition, "offset": record.offset}
        fault = {"reason": error.reason, "description": error.description}
        self._reject(json.dumps({**place, **fault, "message": base64.b64encode(content).decode()}))
        self.rejected += 1


def _print_error(line: str) -> None:
    typer.echo(line, err=True)


def _record(message: Any) -> TakenRecord:  # noqa: ANN401 - of confluent-kafka
    _, time_ = message.timestamp()
    headers = message.headers() or ()
    return TakenRecord(message.partition(), message.offset(), time_, message.key(), message.value(), headers)


@contextlib.contextmanager
def _rejects(file: Path) -> Iterator[Callable[[str], None]]:
    """Yield what appends a line to a file that nobody else may read; the first line creates it."""
    with contextlib.ExitStack() as opened:
        lines: list[SyncedLines] = []

        def append(line: str) -> None:
            if not lines:
                file.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                lines.append(SyncedLines(opened.enter_context(open(descriptor, "a", encoding="utf-8"))))  # noqa: PTH123 - a descriptor
            lines[0].append(line)

        yield append
