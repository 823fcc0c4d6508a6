"""
The checkpoints of a task beside the events of its hub: which belong to an earlier hub, and their reset.

The Functions host keeps them in its storage account. Source: BlobCheckpointStoreInternal of the Event Hubs extension,
Azure/azure-sdk-for-net. A checkpoint is the metadata of an empty blob, and so is the ownership of a partition, which a
running host writes again and again. Earlier versions of the extension kept the checkpoint as the content of a blob
without the folder; it is read if there is no other.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import ContainerClient

from cli.hub_reader import BEFORE_START, ends_of, events
from shared.ends.event_hubs.receiver import EventHub
from shared.errors import ConfigError, Problem, TargetRefused
from shared.message.arrival import Origin
from shared.message.waiting import PartitionEnd
from shared.printable import printable
from shared.stores.host_checkpoints import CONTAINER
from shared.stores.storage_account import HOST_STORAGE, host_storage, synchronous_container
from shared.stores.storage_errors import translated
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

_CHECKPOINT, _OWNERSHIP = "checkpoint/", "ownership/"
# A host writes its ownership every 10 to 30 s, and takes one over that is older than two minutes.
_OWNED = timedelta(minutes=2)


class Checkpoint(NamedTuple):
    """The checkpoint of a partition: the last event that was processed, if its number is known, and when."""

    partition: str
    number: int | None
    modified: datetime
    blob: str
    version: str


class CheckpointStore:
    """
    The checkpoints of one consumer group of one hub.

    Raises: every method raises TargetUnavailable or TargetRefused.
    """

    def __init__(self, client: ContainerClient, namespace: str, hub: str, consumer_group: str) -> None:
        """Use the container of *client*, which the caller closes."""
        self._client = client
        self._prefix = f"{namespace}/{hub}/{consumer_group}/".lower()

    def read(self) -> list[Checkpoint]:
        """Return all checkpoints, the newer form before the older one."""
        with _translated(self._prefix):
            try:
                # The earlier form kept the case of the names, and names of blobs have one (azure-sdk-for-net 17392).
                found = [
                    self._checkpoint(blob)
                    for blob in self._client.list_blobs(include=["metadata"])
                    if str(blob.name).lower().startswith(self._prefix)
                ]
            except ResourceNotFoundError:
                return []
        return sorted((each for each in found if each is not None), key=lambda each: len(each.blob), reverse=True)

    def owned(self) -> list[str]:
        """Return the partitions that a running host has."""
        dates: list[datetime] = []

        def keep_date(answer: Any) -> None:  # noqa: ANN401 - a response of the SDK
            dates.append(parsedate_to_datetime(answer.http_response.headers["Date"]))

        prefix = self._prefix + _OWNERSHIP
        with _translated(prefix):
            try:
                found = list(self._client.list_blobs(prefix, include=["metadata"], raw_response_hook=keep_date))
            except ResourceNotFoundError:
                return []
        now = dates[-1] if dates else datetime.now(UTC)
        return [
            str(each.name).removeprefix(prefix)
            for each in found
            if (each.metadata or {}).get("ownerid") and now - each.last_modified < _OWNED
        ]

    def delete(self, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint that nobody has written meanwhile."""
        with _translated(checkpoint.blob):
            try:
                self._client.get_blob_client(checkpoint.blob).delete_blob(
                    etag=checkpoint.version, match_condition=MatchConditions.IfNotModified
                )
            except ResourceNotFoundError:
                return
            except ResourceModifiedError as error:
                text = "the app has written it meanwhile; stop the app, then reset again"
                raise TargetRefused(f"{checkpoint.blob}: {text}") from error

    def _checkpoint(self, blob: Any) -> Checkpoint | None:  # noqa: ANN401 - the SDK's properties of a blob
        path = str(blob.name)[len(self._prefix) :]
        if path.startswith(_OWNERSHIP):
            return None
        if path.startswith(_CHECKPOINT):
            partition, number = path.removeprefix(_CHECKPOINT), _number((blob.metadata or {}).get("sequencenumber"))
        elif "/" in path:
            return None
        else:
            partition, number = path, None
            with contextlib.suppress(ValueError):
                content = json.loads(self._client.get_blob_client(str(blob.name)).download_blob().readall())
                number = _number(content.get("SequenceNumber")) if isinstance(content, dict) else None
        return Checkpoint(partition, number, blob.last_modified, str(blob.name), str(blob.etag))


@contextmanager
def opened_store(
    settings: Mapping[str, str], namespace: str, hub: str, consumer_group: str
) -> Iterator[CheckpointStore]:
    """Open the storage account of the app; raises ConfigError."""
    with synchronous_container(HOST_STORAGE, host_storage(settings), CONTAINER) as client:
        yield CheckpointStore(client, namespace, hub, consumer_group)


def _number(value: object) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if number >= 0 else None


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except AzureError as error:
        raise translated(f"checkpoints {name}", error) from error


_READ_SECONDS = 10.0
# The clocks of the hub and of the storage account differ.
_CLOCKS = timedelta(minutes=1)


class HubCheckpoints(NamedTuple):
    """The checkpoints of one consumer group of a hub, and the ends of its partitions."""

    ends: Mapping[str, PartitionEnd]
    judged: Sequence[tuple[Checkpoint, str | None]]
    """Each checkpoint, and why it belongs to an earlier hub, None if it does not."""

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
            return cls(ends, [(checkpoint, await _problem(checkpoint, ends, hub)) for checkpoint in found])
        finally:
            await hub.close()

    @property
    def are_current(self) -> bool:
        """Whether none belongs to an earlier hub."""
        return not any(problem for _, problem in self.judged)

    def lines(self) -> Iterator[str]:
        """Yield a table with a line for each partition."""
        yield "partition  checkpoint  first event  last event"
        shown = {checkpoint.partition: (checkpoint, why) for checkpoint, why in reversed(self.judged)}
        for name in _in_order({*self.ends, *shown}):
            end, (one, why) = self.ends.get(name), shown.get(name, (None, None))
            number = "none" if one is None else "unknown" if one.number is None else one.number
            first, last = ("-", "-") if end is None or end.is_empty else (str(end.first), str(end.last))
            problem = "" if why is None else f"  of an earlier hub: {why}"
            yield printable(f"{name:>9}  {number:>10}  {first:>11}  {last:>10}{problem}")

    def reset(self, store: CheckpointStore, partitions: Sequence[str], *, yes: bool) -> Iterator[str]:
        """With *yes*, delete checkpoints of *partitions*, by default those of an earlier hub; yield what is done."""
        known = {checkpoint.partition for checkpoint, _ in self.judged}
        unknown = [name for name in partitions if name not in known]
        if unknown:
            raise ConfigError([Problem(f"--partition {unknown[0]}", "has no checkpoint")])
        # Of a partition with checkpoints of both forms, the host would use the other one.
        wanted = {*partitions} or {checkpoint.partition for checkpoint, why in self.judged if why is not None}
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
        for checkpoint, _ in self.judged:
            if checkpoint.partition in wanted:
                store.delete(checkpoint)
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
    start, place = (
        checkpoint.number - 1 if checkpoint.number else BEFORE_START,
        Origin("", hub.name, checkpoint.partition),
    )
    async with contextlib.aclosing(events(hub, place, start, _READ_SECONDS, most=1)) as pages:
        async for (event,) in pages:
            latest = round((checkpoint.modified + _CLOCKS).timestamp() * 1000)
            if event.number == checkpoint.number and event.enqueued_time is not None and event.enqueued_time > latest:
                return "written before the hub had this event"
            break
    return None
