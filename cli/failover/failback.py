"""
The return to the primary site: publishers first, consumers when no messages are left for them.

1. Publishers move to the primary site. This loses nothing.
2. They may still send to the secondary site for the time to live of the register, since they may use their last answer.
3. Consumers follow when their site holds no message that was published there and not copied to the primary site. Roles
   with the same alias move together then.
4. It is finished when the other sites hold no such message either: publishers may have used a site without consumers.

Source: Microsoft Learn, "Message replication and cross-region federation", active-passive replication.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from cli.failover.contents import Contents, EntityContents
from cli.failover.register import FailoverRefused, Register, RegisterState
from shared.clock import Clock
from shared.errors import TargetUnavailable
from shared.tasks.failover import RECEIVE, SEND

MARGIN = timedelta(seconds=5)
"""How long to wait after the time to live for sends that are still running."""

AGAIN = "Run it again, or with --wait SECONDS."
_LOOK_SECONDS = 2.0
_WAITING = "Run it again with --wait SECONDS."


@dataclass(frozen=True)
class Failback:
    """
    The progress of a failback.

    Shape:  found has the contents of each secondary site, before consumers left it; waits_for is None when publishers
            and consumers are at the primary site and no messages are left elsewhere; advice is what to do next, and
            for_a_person whether waiting does not help.
    """

    state: RegisterState
    found: Mapping[str, Contents]
    waits_for: str | None
    advice: str = AGAIN
    for_a_person: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the failback is finished."""
        return self.waits_for is None

    @property
    def local(self) -> int:
        """How many messages only secondary sites have."""
        return sum(entity.local for held in self.found.values() if not isinstance(held, str) for entity in held)


@dataclass(frozen=True)
class FailbackSteps:
    """The failback to *primary* from all of *secondaries*; *began* is when the command started to wait."""

    register: Register[Any]
    primary: str
    secondaries: Sequence[str]
    look: Callable[[str], Awaitable[Contents]]
    clock: Clock
    began: datetime
    shares_alias: bool = False
    noted: list[str] | None = None
    """Where a dry run notes each change that it would make; None changes the register."""

    async def forced(self) -> Failback:
        """Move publishers and consumers at once, and return what is left behind."""
        state = self.register.read()
        found = {site: await self.look(site) for site in self.secondaries}
        return Failback(self._write({SEND: self.primary, RECEIVE: self.primary}, state), found, None)

    async def step(self, known: RegisterState | None = None) -> Failback:
        """
        Go as far as possible without leaving messages behind; *known* is the state after the previous step.

        Changes nothing when it raises: TargetUnavailable if the site of the consumers cannot be read, FailoverRefused
        if another command has switched.
        """
        before = self.register.read()
        if known is not None and before.version != known.version:
            raise FailoverRefused(f"{self.register.where}: someone else has changed it, expected {known.version}")
        for site in before.active.values():
            if site != self.primary and site not in self.secondaries:
                expected = ", ".join((self.primary, *self.secondaries))
                raise FailoverRefused(f"{self.register.where}: {site} is in use, expected one of {expected}")
        # The time comes first: messages sent before it are counted below.
        now = self.clock.now()
        found = {site: await self.look(site) for site in self.secondaries}
        place = before.active[RECEIVE]
        here = found.get(place, [])
        if isinstance(here, str):
            raise TargetUnavailable(here)
        left = _describe_local(place, here)
        if self.shares_alias and left is not None:
            return Failback(before, found, f"{left}, and publishers use the same alias")
        roles = (SEND, RECEIVE) if self.shares_alias else (SEND,)
        is_back = all(before.active[role] == self.primary for role in roles)
        state = before if is_back else self._write(dict.fromkeys(roles, self.primary), before)
        if state is not before and self.register.reload_command is not None:
            advice = f"Now {self.register.reload_command}, then run it again with --wait SECONDS."
            return Failback(state, found, "publishers do not see the change yet", advice, for_a_person=True)
        changed = state.changed if self.register.reload_command is None else None
        until = (self.began if changed is None else changed) + timedelta(seconds=state.ttl_seconds) + MARGIN
        if until > now:
            elsewhere = [site for site in (before.active[SEND], place) if site != self.primary] or self.secondaries
            wait = max((until - self.clock.now()).total_seconds(), 0.0)
            waits = f"publishers may send to {elsewhere[0]} for {wait:.0f} s more (time to live)"
            return Failback(state, found, waits, AGAIN if changed is not None else _WAITING)
        if left is not None:
            return Failback(state, found, left)
        if state.active[RECEIVE] != self.primary:
            state = self._write({RECEIVE: self.primary}, state)
        lines = [
            f"the contents of {site} are unknown, {each}" if isinstance(each, str) else _describe_local(site, each)
            for site, each in found.items()
        ]
        stranded = "; ".join(line for line in lines if line is not None) or None
        return Failback(state, found, stranded, "Receive them there, or leave them behind with --force.")

    def _write(self, roles: Mapping[str, str], state: RegisterState) -> RegisterState:
        if self.noted is None:
            return self.register.write(roles, state)
        self.noted.extend(self.register.changes(roles, state))
        changed = None if state.changed is None else self.clock.now()
        return replace(state, active={**state.active, **roles}, changed=changed)


async def wait_until_done(
    step: Callable[[RegisterState | None], Awaitable[Failback]],
    clock: Clock,
    seconds: float,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Failback:
    """
    Repeat *step*, with the state after the previous one, until it is finished or *seconds* have passed.

    An error of the first step is raised: nothing has changed. An error of a later step becomes what it waits for.
    """
    end = clock.monotonic() + seconds
    back: Failback | None = None
    while True:
        try:
            back = await step(None if back is None else back.state)
        except (FailoverRefused, TargetUnavailable) as error:
            if back is None:
                raise
            back = replace(back, waits_for=str(error), advice=AGAIN, for_a_person=isinstance(error, FailoverRefused))
        left = end - clock.monotonic()
        if back.is_done or back.for_a_person or left <= 0:
            return back
        await pause(min(_LOOK_SECONDS, left))


def _describe_local(site: str, held: Sequence[EntityContents]) -> str | None:
    local = ", ".join(f"{entity.entity} {entity.local}" for entity in held if entity.local)
    if not local:
        return None
    return f"{site} holds {sum(entity.local for entity in held)} messages that were published there: {local}"
