"""The checkpoints of a task beside the events of its hub: which belong to an earlier hub, and their reset."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from cli.checkpoints.blobs import Checkpoint, CheckpointStore
from cli.hub_reader import BEFORE_START, ends_of, events
from shared.ends.event_hubs.receiver import EventHub
from shared.errors import ConfigError, Problem, TargetRefused
from shared.message.arrival import Origin
from shared.message.waiting import PartitionEnd
from shared.printable import printable
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

_READ_SECONDS = 10.0
# The clocks of the hub and of the storage account differ.
_CLOCKS = timedelta(minutes=1)


class JudgedCheckpoint(NamedTuple):
    """A checkpoint, and why it belongs to an earlier hub, None if it does not."""

    checkpoint: Checkpoint
    problem: str | None


class HubCheckpoints(NamedTuple):
    """The checkpoints of one consumer group of a hub, and the ends of its partitions."""

    ends: Mapping[str, PartitionEnd]
    judged: Sequence[JudgedCheckpoint]

    @classmethod
    async def judge(
        cls,
        found: Iterable[Checkpoint],
        hub: EventHub,
        task: TaskFile,
        configuration: Configuration,
        settings: Mapping[str, str],
    ) -> "HubCheckpoints":
        """Compare what was *found* with the *hub* of *task*; raises TargetUnavailable, TargetRefused."""
        try:
            ends = await ends_of(configuration, task, settings)
            return cls(
                ends, [JudgedCheckpoint(checkpoint, await _problem(checkpoint, ends, hub)) for checkpoint in found]
            )
        finally:
            await hub.close()

    @property
    def are_current(self) -> bool:
        """Whether none belongs to an earlier hub."""
        return not any(checkpoint.problem for checkpoint in self.judged)

    def lines(self) -> Iterator[str]:
        """Yield a table with a line for each partition."""
        yield "partition  checkpoint  first event  last event"
        shown = {checkpoint.checkpoint.partition: checkpoint for checkpoint in reversed(self.judged)}
        for name in _in_order({*self.ends, *shown}):
            end, one = self.ends.get(name), shown.get(name)
            number = "none" if one is None else "unknown" if one.checkpoint.number is None else one.checkpoint.number
            first, last = ("-", "-") if end is None or end.is_empty else (str(end.first), str(end.last))
            problem = "" if one is None or one.problem is None else f"  of an earlier hub: {one.problem}"
            yield printable(f"{name:>9}  {number:>10}  {first:>11}  {last:>10}{problem}")

    def reset(self, store: CheckpointStore, partitions: Sequence[str], *, yes: bool) -> Iterator[str]:
        """With *yes*, delete checkpoints of *partitions*, by default those of an earlier hub; yield what is done."""
        known = {checkpoint.checkpoint.partition for checkpoint in self.judged}
        unknown = [name for name in partitions if name not in known]
        if unknown:
            raise ConfigError([Problem(f"--partition {unknown[0]}", "has no checkpoint")])
        # Of a partition with checkpoints of both forms, the host would use the other one.
        wanted = {*partitions} or {
            checkpoint.checkpoint.partition for checkpoint in self.judged if checkpoint.problem is not None
        }
        if not wanted:
            yield "nothing to reset"
            return
        owned = sorted({*store.owned()} & wanted)
        if owned:
            text = f"the app reads partition {', '.join(owned)}, or did less than two minutes ago"
            hint = "stop it, for example with the command that `busway pause TASK --az` prints, then reset again"
            if yes:
                raise TargetRefused(f"checkpoints: {text}; {hint}")
            yield f"{text}: {hint}"
        names = ", ".join(_in_order(wanted))
        if not yes:
            yield f"would delete the checkpoints of partition {names}"
            return
        for checkpoint in self.judged:
            if checkpoint.checkpoint.partition in wanted:
                store.delete(checkpoint.checkpoint)
        yield f"deleted the checkpoints of partition {names}: the app starts with their first event"


def _in_order(partitions: Iterable[str]) -> list[str]:
    return sorted(partitions, key=lambda name: (len(name), name))


async def _problem(checkpoint: Checkpoint, ends: Mapping[str, PartitionEnd], hub: EventHub) -> str | None:
    end = ends.get(checkpoint.partition)
    if end is None:
        return "the hub has no such partition"
    if checkpoint.number is None:
        return None
    if checkpoint.number > end.last:
        return f"behind the last event, {end.last}"
    if end.is_empty or checkpoint.number < end.first:
        return None
    enqueued = await _enqueued(hub, checkpoint.partition, checkpoint.number)
    if enqueued is not None and enqueued > round((checkpoint.modified + _CLOCKS).timestamp() * 1000):
        return "written before the hub had this event"
    return None


async def _enqueued(hub: EventHub, name: str, number: int) -> int | None:
    """Return when the hub enqueued an event, in milliseconds since 1970 UTC; None if it no longer has it."""
    start = number - 1 if number else BEFORE_START
    async with contextlib.aclosing(events(hub, Origin("", hub.name, name), start, _READ_SECONDS, most=1)) as pages:
        async for (event,) in pages:
            return event.enqueued_time if event.number == number else None
    return None
