"""
Pauses and resumes one task.

Each step can be repeated, and a run that was ended continues with the next one: the order in `control/TASK.json` has
what the source was before, and it is written before anything is changed. docs/decisions/0051 has the steps.
"""

import asyncio
from collections.abc import Awaitable, Callable
from copy import replace
from dataclasses import KW_ONLY, dataclass, field

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


@dataclass
class Steering:
    """One task, its orders, and the entity whose status stops deliveries: None for an event hub."""

    task: str
    store: StatusStore
    entity: Entity | None
    say: Callable[[str], None]
    """Reports each step."""
    _: KW_ONLY
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def pause(self, by: str, reason: str | None, seconds: float) -> int:
        """
        Pause the task for the person *by*; return the messages that were still in hand after *seconds*.

        Raises: TargetUnavailable, TargetRefused or ConfigError; then repeat it.
        """
        await self._order(by, reason)
        in_hand = await self._wait(seconds)
        control = await self.store.control(self.task)
        if control is None or not control.paused or (self.entity is not None and control.before is None):
            raise TargetRefused("someone else has resumed it meanwhile; to pause it again, repeat the command")
        if self.entity is None:
            if in_hand:
                self.say(f"{_messages(in_hand)} still in hand; nothing new is sent")
            return in_hand
        if control.before in PAUSED_FORMS:
            after = PAUSED_FORMS[control.before]
            found = await asyncio.to_thread(self.entity.change, control.before, after)
            self.say(f"{self.entity.name} is {found}, it delivers nothing")
        if in_hand:
            self.say(f"{_messages(in_hand)} still in hand: they are delivered again after the resume")
        await self.store.write_control(self.task, replace(control, closed=True))
        return in_hand

    async def show_pause(self) -> None:
        """Say what `pause` would do; raises as `pause`."""
        control = await self.store.control(self.task)
        in_hand = self._in_hand(await self._reports())
        if control is not None and control.paused:
            self.say(f"is paused since {control.since}, by {control.by}")
        report = f"instances that report it: {len(in_hand)}, {_messages(sum(in_hand))} in hand"
        self.say(f"would start no new batch; {report}")
        if self.entity is None:
            return
        found = await asyncio.to_thread(self.entity.status)
        after = PAUSED_FORMS.get(found)
        self.say(f"{self.entity.name} is {found}" + (", it would be " + after if after else " and stays so"))

    async def show_resume(self) -> None:
        """Say what `resume` would do; raises as `pause`."""
        control = await self.store.control(self.task)
        if control is None:
            self.say("is not paused")
            return
        self.say(f"would be resumed; it is paused since {control.since}, by {control.by}")
        if self.entity is not None and control.before is not None:
            found = await asyncio.to_thread(self.entity.status)
            is_ours = PAUSED_FORMS.get(control.before) == found
            self.say(
                f"{self.entity.name} is {found}" + (f", it would be {control.before}" if is_ours else " and stays so")
            )

    async def resume(self) -> None:
        """Undo what `pause` did, and nothing else; raises as `pause`."""
        control = await self.store.control(self.task)
        if control is None:
            self.say("is not paused")
            return
        # First the order: a batch must not be given back because of an old one.
        await self.store.write_control(self.task, replace(control, paused=False, closed=False))
        if self.entity is not None and control.before in PAUSED_FORMS:
            found = await asyncio.to_thread(self.entity.change, PAUSED_FORMS[control.before], control.before)
            changed = " again" if found == control.before else ", which someone else has set; it stays so"
            self.say(f"{self.entity.name} is {found}{changed}")
        elif control.before is not None and self.entity is not None:
            self.say(f"{self.entity.name} stays {control.before}, as it was before the pause")
        await self.store.delete_control(self.task)
        self.say("is resumed")

    async def _order(self, by: str, reason: str | None) -> None:
        """Write the order; one that is there keeps its time, its author and what the source was before."""
        found = await self.store.control(self.task)
        now = (await self._reports()).now
        if found is None or not found.paused:
            before = None if found is None else found.before
            found = Control(paused=True, since=iso(now), by=by, reason=reason, before=before)
        elif reason is not None:
            found = replace(found, reason=reason)
        if self.entity is not None and found.before is None:
            found = replace(found, before=await asyncio.to_thread(self.entity.status), entity=self.entity.name)
        # A source that was paused before is closed already, unless someone has opened it meanwhile.
        await self.store.write_control(self.task, found)
        self.say("starts no new batch")

    async def _wait(self, seconds: float) -> int:
        """Wait until no instance has a batch in hand; return the messages in hand after *seconds*."""
        start = self.clock.monotonic()
        while True:
            reports = await self._reports()
            in_hand = sum(self._in_hand(reports))
            waited = self.clock.monotonic() - start
            if waited >= _KNOWN_SECONDS and (not in_hand or waited >= seconds):
                return in_hand
            await self.sleep(_LOOK_SECONDS)

    def _in_hand(self, reports: Reports) -> list[int]:
        """Return the messages that each instance has in hand."""
        return [
            task.in_hand
            for instance in reports.instances
            if (reports.now - instance.written).total_seconds() <= GONE_SECONDS
            for task in instance.report.tasks
            if task.task == self.task
        ]

    async def _reports(self) -> Reports:
        return await self.store.reports(self.clock.now(), GONE_SECONDS)


def _messages(count: int) -> str:
    return f"{count} message{' is' if count == 1 else 's are'}"
