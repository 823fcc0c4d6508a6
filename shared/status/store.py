"""
The blobs of the status, in a container beside that of the journal: `instances/`, `history/` and `control/`.

docs/decisions/0047 describes the layout and what it costs.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec

from shared.errors import TargetRefused
from shared.losses.report import VERSION as WATCH_VERSION
from shared.losses.report import WatchState, blob_name
from shared.status.report import GONE_SECONDS, VERSION, Control, HourReport, InstanceReport
from shared.status.times import milliseconds
from shared.stores.blobs import Blob, Listed, Listing, some_at_once

KEPT = timedelta(hours=24)
"""How long the blobs of an instance that is gone, and the history, are kept."""
_INSTANCES, _HISTORY, _CONTROL = "instances/", "history/", "control/"
_SUFFIX = ".json"
_HOUR = "%Y-%m-%dT%H"
# Each start of a process has a blob; of those that are gone, the latest are enough.
_MOST_GONE = 20
_SECONDS_OF_AN_HOUR = 3600


class Container(Protocol):
    """The part of `shared.stores.container.BlobContainer` that the status needs."""

    async def replace(self, name: str, content: bytes) -> None:
        """Write a blob, whatever is there."""
        ...

    async def read_all(self, name: str) -> Blob | None:
        """Return a blob, None if missing."""
        ...

    async def listed(self, prefix: str) -> Listing:
        """Return the blobs that start with *prefix*."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a blob, if there is one."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Found(NamedTuple):
    """The report of an instance, and when it was written by the clock of the storage account."""

    name: str
    """The name of its blobs."""
    report: InstanceReport
    written: datetime

    @property
    def ahead(self) -> int:
        """By how many milliseconds the clock of the instance is ahead of the storage account's."""
        return self.report.time - milliseconds(self.written)

    def is_alive(self, now: datetime) -> bool:
        """Return whether the instance still reports, by the time of the storage account."""
        return (now - self.written).total_seconds() <= GONE_SECONDS


class FoundHour(NamedTuple):
    """The history of an instance in one hour."""

    name: str
    report: HourReport


class Reports(NamedTuple):
    """All that instances have reported, what operators have ordered, and what could not be read."""

    now: datetime
    """The time of the storage account, so that no other clock decides who is gone."""
    instances: Sequence[Found] = ()
    controls: dict[str, Control] = {}  # noqa: RUF012 - never changed
    damaged: Sequence[str] = ()
    """Names of blobs with another content than expected."""


class StatusStore:
    """
    Reads and writes the blobs.

    Raises: every method raises TargetUnavailable or TargetRefused.
    """

    def __init__(self, container: Container) -> None:
        """Use an open *container*."""
        self._container = container

    async def write_instance(self, name: str, report: InstanceReport) -> None:
        """Replace the report of an instance."""
        await self._container.replace(f"{_INSTANCES}{name}{_SUFFIX}", msgspec.json.encode(report))

    async def write_hour(self, name: str, hour: int, report: HourReport) -> None:
        """Replace the history of an instance in an hour, in hours since 1970."""
        await self._container.replace(f"{_folder(hour)}{name}{_SUFFIX}", msgspec.json.encode(report))

    async def write_control(self, task: str, control: Control) -> None:
        """Replace the orders for a task."""
        await self._container.replace(f"{_CONTROL}{task}{_SUFFIX}", msgspec.json.encode(control))

    async def control(self, task: str) -> Control | None:
        """Return the orders for a task, None if missing."""
        name = f"{_CONTROL}{task}{_SUFFIX}"
        blob = await self._container.read_all(name)
        control = _decoded(blob, Control)
        if blob is not None and control is None:
            raise TargetRefused(f"status {name}: is not an order of `busway pause`; delete it")
        return control

    async def delete_control(self, task: str) -> None:
        """Delete the orders for a task, if there are any."""
        await self._container.delete(f"{_CONTROL}{task}{_SUFFIX}")

    async def reports(self, now: datetime, gone_seconds: float) -> Reports:
        """Return the reports of all instances; *now* is used if the storage account does not report its time."""
        listing = await self._container.listed(_INSTANCES)
        time = listing.now or now
        latest = sorted(listing.blobs, key=lambda blob: blob.modified, reverse=True)
        alive = [each for each in latest if (time - each.modified).total_seconds() <= gone_seconds]
        gone = [each for each in latest[len(alive) :] if time - each.modified <= KEPT][:_MOST_GONE]
        damaged: list[str] = []
        found = []
        for each, blob in zip([*alive, *gone], await self._read([*alive, *gone]), strict=True):
            report = _decoded(blob, InstanceReport)
            if report is not None and report.version == VERSION:
                found.append(Found(_stem(each.name), report, each.modified))
            elif blob is not None:
                damaged.append(each.name)
        controls = {}
        ordered = (await self._container.listed(_CONTROL)).blobs
        for each, blob in zip(ordered, await self._read(ordered), strict=True):
            control = _decoded(blob, Control)
            if control is not None:
                controls[_stem(each.name)] = control
            elif blob is not None:
                damaged.append(each.name)
        return Reports(time, found, controls, damaged)

    async def history(self, hours: Iterable[int]) -> list[FoundHour]:
        """Return the history of all instances in *hours*, in hours since 1970; what cannot be read is left out."""
        listings = await some_at_once([self._container.listed(_folder(hour)) for hour in hours])
        listed = [blob for listing in listings for blob in listing.blobs]
        found = []
        for each, blob in zip(listed, await self._read(listed), strict=True):
            report = _decoded(blob, HourReport)
            if report is not None and report.version == VERSION:
                found.append(FoundHour(_stem(each.name), report))
        return found

    async def losses(self, tasks: Iterable[str]) -> dict[str, WatchState]:
        """Return the state of the watch on the source of each task that has one."""
        names = list(tasks)
        blobs = await some_at_once([self._container.read_all(blob_name(task)) for task in names])
        states = {task: _decoded(blob, WatchState) for task, blob in zip(names, blobs, strict=True)}
        return {task: state for task, state in states.items() if state is not None and state.version == WATCH_VERSION}

    async def clean(self, now: datetime) -> int:
        """Delete what is older than KEPT; return the number of blobs."""
        old = []
        for prefix in (_INSTANCES, _HISTORY):
            listing = await self._container.listed(prefix)
            time = listing.now or now
            old += [blob.name for blob in listing.blobs if time - blob.modified > KEPT]
        await some_at_once([self._container.delete(name) for name in old])
        return len(old)

    async def close(self) -> None:
        """Close the connection."""
        await self._container.close()

    async def _read(self, blobs: Sequence[Listed]) -> list[Blob | None]:
        return await some_at_once([self._container.read_all(blob.name) for blob in blobs])


def hour_of(time: datetime) -> int:
    """Return the hours since 1970."""
    return int(time.timestamp()) // _SECONDS_OF_AN_HOUR


def _folder(hour: int) -> str:
    return f"{_HISTORY}{datetime.fromtimestamp(hour * _SECONDS_OF_AN_HOUR, UTC).strftime(_HOUR)}/"


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(_SUFFIX)


def _decoded[Kind](blob: Blob | None, kind: type[Kind]) -> Kind | None:
    if blob is None:
        return None  # deleted since it was listed
    try:
        return msgspec.json.decode(blob.content, type=kind)
    except msgspec.DecodeError:
        return None
