"""
Sends the heartbeats of all tasks that have any, each time the app's timer calls.

A route has at most one heartbeat on its way: the next one follows once the source has delivered it, or after
GIVEN_UP_AFTER intervals. So a task that stands still for a night finds a few in its source, not hundreds. The reports
of all instances say what is on its way: the host may run the timer in another one each time.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from shared.clock import Clock, SystemClock
from shared.errors import BuswayError
from shared.message.heartbeat import Heartbeat
from shared.printable import printable
from shared.protocols import Outgoing, Output
from shared.status.recorder import TaskRecorder
from shared.status.report import GONE_SECONDS, RouteReport
from shared.status.store import Reports, StatusStore
from shared.status.times import milliseconds
from shared.stores.blobs import some_at_once

_LOGGER = logging.getLogger("busway.heartbeats")

GIVEN_UP_AFTER = 10
_SEND_SECONDS = 5.0
# The timer does not call to the millisecond.
_EARLY = 0.75


@dataclass(frozen=True)
class HeartbeatRoute:
    """A route that has heartbeats: where they are sent, and who records them."""

    task: str
    number: int
    every: float
    """Seconds from one to the next."""
    output: Output
    entity: str
    """The queue, topic or hub that the task takes from."""
    has_sessions: bool
    partition: str | None
    """The partition of a hub to send to, None: any."""
    recorder: TaskRecorder


class HeartbeatTimer:
    """Sends the heartbeats that are due."""

    def __init__(
        self, routes: Sequence[HeartbeatRoute], open_store: Callable[[], StatusStore], clock: Clock | None = None
    ) -> None:
        """Read the reports of all instances from the store that *open_store* opens."""
        self._routes = list(routes)
        self._open_store = open_store
        self._store: StatusStore | None = None
        self._clock = clock or SystemClock()
        self._failing: set[tuple[str, int]] = set()

    async def look(self) -> None:
        """Send what is due; a failure is recorded and logged, and the next call tries again."""
        now = milliseconds(self._clock.now())
        reports = await self._reports()
        await some_at_once([self._send(route, now) for route in self._routes if _is_due(route, reports, now)])

    async def close(self) -> None:
        """Close the connection to the store, but no output."""
        if self._store is not None:
            await self._store.close()

    async def _reports(self) -> Reports | None:
        try:
            if self._store is None:
                self._store = self._open_store()
            return await self._store.reports(self._clock.now(), GONE_SECONDS)
        except BuswayError as error:
            # What this instance knows itself has to do.
            _LOGGER.warning("the reports of other instances cannot be read: %s", printable(str(error)))
            return None

    async def _send(self, route: HeartbeatRoute, now: int) -> None:
        message = Heartbeat(route.task, route.number, now).to_source(has_session=route.has_sessions)
        outgoing = Outgoing(message.encode(), *message.envelope(), route.partition)
        (error,) = await route.output.send(route.entity, [outgoing], timeout_seconds=_SEND_SECONDS)
        route.recorder.heartbeat_sent(route.number, now, error)
        key = route.task, route.number
        if error is None:
            self._failing.discard(key)
        elif key not in self._failing:
            self._failing.add(key)
            _LOGGER.warning("%s: its heartbeat cannot be sent: %s", route.task, printable(str(error)))


def _is_due(route: HeartbeatRoute, reports: Reports | None, now: int) -> bool:
    control = None if reports is None else reports.controls.get(route.task)
    if control is not None and control.paused:
        return False
    known = [route.recorder.route(route.number), *_reported(route, reports)]
    sent = max((report.sent for report in known if report.sent is not None), default=None)
    if sent is None:
        return True
    is_delivered = any(report.taken is not None and report.taken >= sent for report in known)
    intervals = 1 if is_delivered else GIVEN_UP_AFTER
    return now - sent >= (intervals - 1 + _EARLY) * route.every * 1000


def _reported(route: HeartbeatRoute, reports: Reports | None) -> Iterable[RouteReport]:
    for found in () if reports is None else reports.instances:
        for task in found.report.tasks:
            if task.task == route.task:
                yield from (heartbeat for heartbeat in task.heartbeats if heartbeat.route == route.number)
