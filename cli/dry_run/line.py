"""
A dry run of a task: the app's own pipeline, observed at every step, with outputs and locks that do nothing.

Only editors that write to a store need to know that it is a dry run: `shared.editors.options.TaskFacts.dry_run`.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice

from cli.dry_run.messages import RecordedMessage
from cli.dry_run.observer import Observer, Step
from shared.assembly.pipelines import assemble
from shared.clock import Clock
from shared.errors import BuswayError, MessageRejected
from shared.journal.in_memory import MemoryJournal
from shared.line.pipeline import Pipeline
from shared.line.task import Task
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import Outgoing, Record
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

# Short, since a person waits: an unavailable store is retried once or twice.
_HOLD = timedelta(seconds=5)
_LOCK_TOKEN_BYTES = 16
_HUB_PARTITION = "0"


@dataclass(frozen=True)
class Result:
    """What a task would do with a message."""

    content: bytes
    arrival: Arrival | None
    """None if the content is not a message."""
    partition: str | None
    steps: Sequence[Step]
    ends: Sequence[Record]
    """One journal record per part; empty if the task does not read this partition."""


def dry_task(
    file: TaskFile, configuration: Configuration, settings: Mapping[str, str], clock: Clock | None = None
) -> Task:
    """Return the task of a file, with outputs that send nothing; raises ConfigError."""
    outputs = {alias: NoOutput() for alias in configuration.connections}
    alone = replace(configuration, tasks=[file], taps=())
    (task,) = assemble(alone, outputs, settings=settings, clock=clock, dry_run=True)
    return task


def batches_of(
    found: Sequence[RecordedMessage], file: TaskFile, origin: Origin
) -> list[tuple[str | None, Sequence[bytes]]]:
    """Return the messages in batches as the host would deliver them: by partition, or by session."""
    batches: dict[tuple[str | None, str | None], list[bytes]] = {}
    for content, partition in found:
        where = None if file.source.hub is None else partition or _HUB_PARTITION
        session = None
        with contextlib.suppress(MessageRejected):
            session = Message.received(content, origin).session_id if file.source.sessions else None
        batches.setdefault((where, session), []).append(content)
    return [(partition, contents) for (partition, _), contents in batches.items()]


async def try_batches(task: Task, batches: Sequence[tuple[str | None, Sequence[bytes]]], clock: Clock) -> list[Result]:
    """
    Return what *task* would do with the messages of *batches*; each batch comes from one partition, if there are any.

    The outputs of *task* must send nothing. Raises TargetUnavailable and TargetRefused if an editor's store fails.
    """
    dry = replace(task, settlement=_NoSettlement(), hold=_HOLD, rejects_in_a_row=None)
    return [result for partition, contents in batches for result in await _try_batch(dry, partition, contents, clock)]


async def _try_batch(task: Task, partition: str | None, contents: Sequence[bytes], clock: Clock) -> list[Result]:
    observer, journal = Observer(), MemoryJournal()
    pipeline = Pipeline(task, journal, clock, watch=observer.watch)
    tokens = [number.to_bytes(_LOCK_TOKEN_BYTES) for number in range(len(contents))] if partition is None else []
    await pipeline.run(contents, partition, tokens)
    origin = task.origin if partition is None else task.origin._replace(partition=partition)
    # No batch was seen if the task does not read this partition.
    counts = Counter(item.original.position for batch in observer.batches for item in batch.items)
    records = iter(journal.records)
    results = []
    for index, content in enumerate(contents):
        ends, arrival = list(islice(records, counts[index])), None
        with contextlib.suppress(MessageRejected):
            arrival = Message.received(content, origin).arrival
        results.append(Result(content, arrival, partition, observer.steps.get(index, ()), ends))
    return results


class NoOutput:
    """Accepts everything and sends nothing."""

    async def send(
        self,
        entity: str,  # noqa: ARG002 - required by the protocol
        messages: Sequence[Outgoing],
        *,
        timeout_seconds: float,  # noqa: ARG002 - required by the protocol
    ) -> list[BuswayError | None]:
        """Accept *messages*."""
        return [None] * len(messages)

    async def close(self) -> None:
        """Close nothing."""


class _NoSettlement:
    """Settles nothing, since the messages stay in the source."""

    async def renew(self, token: bytes, *, timeout_seconds: float) -> None:
        pass

    async def complete(self, token: bytes, *, timeout_seconds: float) -> None:
        pass

    async def abandon(self, token: bytes, *, timeout_seconds: float) -> None:
        pass

    async def dead_letter(self, token: bytes, reason: str, description: str, *, timeout_seconds: float) -> None:
        pass
