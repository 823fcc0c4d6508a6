"""
Pauses and resumes one task.

Each step can be repeated, and a run that was ended continues with the next one: the order in `control/TASK.json` has
what the source was before, and it is written before anything is changed. docs/decisions/0051 has the steps.
"""

import asyncio
from collections.abc import Awaitable, Callable
from copy import replace

from cli.pause.entity import PAUSED_FORMS, Entity
from shared.clock import Clock, SystemClock
from shared.errors import TargetRefused
from shared.line.pause import ORDER_SECONDS
from shared.status.report import GONE_SECONDS, SECONDS_BETWEEN_WRITES, Control
from shared.status.store import Reports, StatusStore
from shared.status.times import iso

_LOOK_SECONDS = 1.0
# An instance may start a batch until it reads the order, and report it only afterwards.
_KNOWN_SECONDS = ORDER_SECONDS + SECONDS_BETWEEN_WRITES + 2.0


class Steering:
    """One task, its orders, and the entity whose status stops deliveries: None for an event hub."""

    def __init__(
        self,
        task: str,
        store: StatusStore,
        entity: Entity | None,
        say: Callable[[str], None],
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Report each step with *say*."""
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._task = task
        self._store = store
        self._entity = entity
        self._say = say

    async def pause(self, by: str, reason: str | None, seconds: float) -> int:
        """
        Pause the task for the person *by*; return the messages that were still in hand after *seconds*.

        Raises: TargetUnavailable, TargetRefused or ConfigError; then repeat it.
        """
        await self._order(by, reason)
        in_hand = await self._wait(seconds)
        control = await self._store.control(self._task)
        if control is None or not control.paused or (self._entity is not None and control.before is None):
            raise TargetRefused("someone else has resumed it meanwhile; to pause it again, repeat the command")
        if self._entity is None:
            if in_hand:
                self._say(f"{_messages(in_hand)} still in hand; nothing new is sent")
            return in_hand
        if control.before in PAUSED_FORMS:
            after = PAUSED_FORMS[control.before]
            found = await asyncio.to_thread(self._entity.change, control.before, after)
            self._say(f"{self._entity.name} is {found}, it delivers nothing")
        if in_hand:
            self._say(f"{_messages(in_hand)} still in hand: they are delivered again after the resume")
        await self._store.write_control(self._task, replace(control, closed=True))
        return in_hand

    async def show_pause(self) -> None:
        """Say what `pause` would do; raises as `pause`."""
        control = await self._store.control(self._task)
        reports = await self._reports()
        count = sum(
            (reports.now - instance.written).total_seconds() <= GONE_SECONDS
            and any(task.task == self._task for task in instance.report.tasks)
            for instance in reports.instances
        )
        if control is not None and control.paused:
            self._say(f"is paused since {control.since}, by {control.by}")
        self._say(
            f"would start no new batch; instances that report it: {count}, {_messages(self._in_hand(reports))} in hand"
        )
        if self._entity is None:
            return
        found = await asyncio.to_thread(self._entity.status)
        after = PAUSED_FORMS.get(found)
        self._say(f"{self._entity.name} is {found}" + (", it would be " + after if after else " and stays so"))

    async def show_resume(self) -> None:
        """Say what `resume` would do; raises as `pause`."""
        control = await self._store.control(self._task)
        if control is None:
            self._say("is not paused")
            return
        self._say(f"would be resumed; it is paused since {control.since}, by {control.by}")
        if self._entity is not None and control.before is not None:
            found = await asyncio.to_thread(self._entity.status)
            is_ours = PAUSED_FORMS.get(control.before) == found
            self._say(
                f"{self._entity.name} is {found}" + (f", it would be {control.before}" if is_ours else " and stays so")
            )

    async def resume(self) -> None:
        """Undo what `pause` did, and nothing else; raises as `pause`."""
        control = await self._store.control(self._task)
        if control is None:
            self._say("is not paused")
            return
        # First the order: a batch must not be given back because of an old one.
        await self._store.write_control(self._task, replace(control, paused=False, closed=False))
        if self._entity is not None and control.before in PAUSED_FORMS:
            found = await asyncio.to_thread(self._entity.change, PAUSED_FORMS[control.before], control.before)
            changed = " again" if found == control.before else ", which someone else has set; it stays so"
            self._say(f"{self._entity.name} is {found}{changed}")
        elif control.before is not None and self._entity is not None:
            self._say(f"{self._entity.name} stays {control.before}, as it was before the pause")
        await self._store.delete_control(self._task)
        self._say("is resumed")

    async def _order(self, by: str, reason: str | None) -> None:
        """Write the order; one that is there keeps its time, its author and what the source was before."""
        found = await self._store.control(self._task)
        now = (await self._reports()).now
        if found is None or not found.paused:
            before = None if found is None else found.before
            found = Control(paused=True, since=iso(now), by=by, reason=reason, before=before)
        elif reason is not None:
            found = replace(found, reason=reason)
        if self._entity is not None and found.before is None:
            found = replace(found, before=await asyncio.to_thread(self._entity.status), entity=self._entity.name)
        # A source that was paused before is closed already, unless someone has opened it meanwhile.
        await self._store.write_control(self._task, found)
        self._say("starts no new batch")

    async def _wait(self, seconds: float) -> int:
        """Wait until no instance has a batch in hand; return the messages in hand after *seconds*."""
        start = self._clock.monotonic()
        while True:
            reports = await self._reports()
            in_hand = self._in_hand(reports)
            waited = self._clock.monotonic() - start
            if waited >= _KNOWN_SECONDS and (not in_hand or waited >= seconds):
                return in_hand
            await self._sleep(_LOOK_SECONDS)

    def _in_hand(self, reports: Reports) -> int:
        return sum(
            task.in_hand
            for instance in reports.instances
            if (reports.now - instance.written).total_seconds() <= GONE_SECONDS
            for task in instance.report.tasks
            if task.task == self._task
        )

    async def _reports(self) -> Reports:
        return await self._store.reports(self._clock.now(), GONE_SECONDS)


def _messages(count: int) -> str:
    return f"{count} message{' is' if count == 1 else 's are'}"
