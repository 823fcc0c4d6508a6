"""
Writes what this instance does to the storage of the journal, every few seconds, in a thread of its own.

No batch waits for it. An instance that ends does not notice it (docs/decisions/0003): its blob is then no longer
replaced, and readers report it as gone.
"""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.clock import Clock, SystemClock
from shared.errors import TargetRefused, TargetUnavailable
from shared.printable import printable
from shared.status.recorder import TaskRecorder, hour_report
from shared.status.report import HEARTBEAT_SECONDS, SECONDS_BETWEEN_WRITES, VERSION, InstanceReport
from shared.status.store import StatusStore, hour_of

_LOGGER = logging.getLogger("busway.status")

_HISTORY_SECONDS = 60.0
_CLEAN_SECONDS = 3600.0
_NAME = re.compile(r"[^a-z0-9]")
_NAME_LENGTH = 32


@dataclass(frozen=True)
class Identity:
    """What distinguishes this process: Azure's id of the instance, the app, its region, and the version of Busway."""

    instance: str
    app: str | None = None
    region: str | None = None
    busway: str | None = None


class Publisher:
    """Publishes the tasks of one process."""

    def __init__(
        self,
        open_store: Callable[[], StatusStore],
        recorders: Sequence[TaskRecorder],
        identity: Identity,
        clock: Clock | None = None,
    ) -> None:
        """Open the store in the thread that writes, because its client belongs to one event loop."""
        self._clock = clock or SystemClock()
        self._open_store = open_store
        self._store: StatusStore | None = None
        self._recorders = list(recorders)
        self._identity = identity
        self._started = self._now()
        # Two processes of one instance, or a restart, have a blob each.
        self.name = f"{_NAME.sub('', identity.instance.lower())[:_NAME_LENGTH] or 'instance'}-{self._started}"
        self._written: float | None = None
        self._changes = -1
        self._history_written = self._cleaned = float("-inf")
        self._history_changes = 0
        self._hour: int | None = None
        self._is_failing = False

    def start(self) -> None:
        """Publish from now on, until the process ends."""
        threading.Thread(target=self._run, name="busway-status", daemon=True).start()

    async def publish(self) -> bool:
        """Write what is due; return whether anything was. A failure is logged, and the next call tries again."""
        changes = sum(recorder.changes for recorder in self._recorders)
        stopwatch = self._clock.monotonic()
        is_due = self._written is None or stopwatch - self._written >= HEARTBEAT_SECONDS
        if changes == self._changes and not is_due:
            return False
        try:
            await self._write(stopwatch, changes)
        except (TargetUnavailable, TargetRefused) as error:
            if not self._is_failing:
                _LOGGER.warning("the status of this instance cannot be published: %s", printable(str(error)))
            self._is_failing = True
            return False
        if self._is_failing:
            _LOGGER.info("the status of this instance is published again")
            self._is_failing = False
        return True

    async def _write(self, stopwatch: float, changes: int) -> None:
        store = self._store = self._store or self._open_store()
        # Before the report: a reader finds each minute in one of both.
        await self._write_history(store, stopwatch, changes)
        await store.write_instance(self.name, self._report())
        self._written, self._changes = stopwatch, changes
        if stopwatch - self._cleaned >= _CLEAN_SECONDS:
            await store.clean(self._clock.now())
            self._cleaned = stopwatch

    async def _write_history(self, store: StatusStore, stopwatch: float, changes: int) -> None:
        hour = hour_of(self._clock.now())
        has_turned = self._hour is not None and hour != self._hour
        if changes == self._history_changes and not has_turned:
            return
        if stopwatch - self._history_written < _HISTORY_SECONDS and not has_turned:
            return
        for each in dict.fromkeys((self._hour if self._hour is not None else hour, hour)):
            report = hour_report(self._recorders, each)
            if report.minutes:
                await store.write_hour(self.name, each, report)
        self._hour, self._history_written, self._history_changes = hour, stopwatch, changes

    def _report(self) -> InstanceReport:
        reports = [report for recorder in self._recorders if (report := recorder.report()) is not None]
        return InstanceReport(
            VERSION,
            self._identity.instance,
            self._started,
            self._now(),
            reports,
            self._identity.app,
            self._identity.region,
            self._identity.busway,
        )

    def _run(self) -> None:
        asyncio.run(self._publish_until_the_end())

    async def _publish_until_the_end(self) -> None:
        while True:
            try:
                await self.publish()
            except Exception:
                # A fault of the status must not end the thread: the next report may succeed.
                _LOGGER.exception("the status of this instance cannot be published")
            await asyncio.sleep(SECONDS_BETWEEN_WRITES)

    def _now(self) -> int:
        return round(self._clock.now().timestamp() * 1000)
