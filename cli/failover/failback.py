"""
The way back, in the order of the federation article: publishers first, consumers when nothing is left for them.

1. Publishers go to the primary site. Nothing is lost by that.
2. They may send elsewhere for as long as they may use what they have read: the time to live of the register.
3. Consumers follow when the site where they are holds nothing that was published there and that nobody carries to the
   primary. Roles with one alias go back together then.
4. It is done when no other site holds any either: publishers may have been where consumers never were.

Source: Microsoft Learn, "Message replication and cross-region federation", active-passive replication.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cli.failover.holdings import Holding
from cli.failover.looking import Look
from cli.failover.register import FailoverRefused, Register, Standing
from shared.clock import Clock
from shared.config.failover import RECEIVE, SEND
from shared.errors import TargetUnavailable

MARGIN = timedelta(seconds=5)
"""How long after the time to live a send that was on its way is waited for."""

AGAIN = "Run it again, or with --wait SECONDS."
_LOOK_SECONDS = 2.0
_WAITING = "Run it again with --wait SECONDS."


@dataclass(frozen=True)
class Failback:
    """
    How far it has come.

    Shape:  found is what was seen at each secondary site, before consumers left it; waits_for is None when publishers
            and consumers are at the primary and nothing is left elsewhere; advice is how to go on, and for_a_person
            whether waiting alone does not help.
    """

    standing: Standing
    found: Mapping[str, Look]
    waits_for: str | None
    advice: str = AGAIN
    for_a_person: bool = False

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to do."""
        return self.waits_for is None

    @property
    def local(self) -> int:
        """How many messages were seen that only secondary sites have."""
        return sum(each.local for held in self.found.values() if not isinstance(held, str) for each in held)


@dataclass(frozen=True)
class WayBack:
    """The way back to *primary* from all of *secondaries*; *began* is when whoever waits began to."""

    register: Register
    primary: str
    secondaries: Sequence[str]
    look: Callable[[str], Awaitable[Look]]
    clock: Clock
    began: datetime
    shares_alias: bool = False

    async def forced(self) -> Failback:
        """Go all the way at once, and tell what is left behind."""
        standing = self.register.read()
        found = {site: await self.look(site) for site in self.secondaries}
        return Failback(self.register.write({SEND: self.primary, RECEIVE: self.primary}, standing), found, None)

    async def step(self, known: Standing | None = None) -> Failback:
        """
        Go as far as nothing is lost by it; *known* is the standing after the step before.

        Nothing is done where it raises: TargetUnavailable if the site where consumers are cannot be looked at,
        FailoverRefused if somebody else switches.
        """
        before = self.register.read()
        if known is not None and before.version != known.version:
            raise FailoverRefused(f"{self.register.where}: somebody has changed it meanwhile, expected {known.version}")
        for site in before.active.values():
            if site != self.primary and site not in self.secondaries:
                expected = ", ".join((self.primary, *self.secondaries))
                raise FailoverRefused(f"{self.register.where}: {site} is in use, expected one of {expected}")
        # All that is counted below is there now if publishers have had their time by now.
        now = self.clock.now()
        found = {site: await self.look(site) for site in self.secondaries}
        place = before.active[RECEIVE]
        here = found.get(place, [])
        if isinstance(here, str):
            raise TargetUnavailable(here)
        left = _told(place, here)
        if self.shares_alias and left is not None:
            return Failback(before, found, f"{left}, and publishers have the same alias")
        standing = self._publishers_back(before)
        if standing is not before and self.register.loading is not None:
            advice = f"Now {self.register.loading}, then run it again with --wait SECONDS."
            return Failback(standing, found, "publishers do not know of it yet", advice, for_a_person=True)
        changed = standing.changed if self.register.loading is None else None
        until = (self.began if changed is None else changed) + timedelta(seconds=standing.ttl_seconds) + MARGIN
        if until > now:
            elsewhere = [site for site in (before.active[SEND], place) if site != self.primary] or self.secondaries
            wait = max((until - self.clock.now()).total_seconds(), 0.0)
            waits = f"publishers may send to {elsewhere[0]} for {wait:.0f} s more (time to live)"
            return Failback(standing, found, waits, AGAIN if changed is not None else _WAITING)
        if left is not None:
            return Failback(standing, found, left)
        if standing.active[RECEIVE] != self.primary:
            standing = self.register.write({RECEIVE: self.primary}, standing)
        return Failback(standing, found, _stranded(found), "Receive them there, or leave them behind with --force.")

    def _publishers_back(self, standing: Standing) -> Standing:
        roles = (SEND, RECEIVE) if self.shares_alias else (SEND,)
        if all(standing.active[role] == self.primary for role in roles):
            return standing
        return self.register.write(dict.fromkeys(roles, self.primary), standing)


async def waited_for(
    step: Callable[[Standing | None], Awaitable[Failback]],
    clock: Clock,
    seconds: float,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Failback:
    """
    Go on by *step*, which is given the standing after the one before, until it is done or *seconds* are over.

    What the first step raises is raised: nothing was done. Of a later one it is what is waited for.
    """
    end = clock.monotonic() + seconds
    back: Failback | None = None
    while True:
        try:
            back = await step(None if back is None else back.standing)
        except (FailoverRefused, TargetUnavailable) as error:
            if back is None:
                raise
            back = replace(back, waits_for=str(error), advice=AGAIN, for_a_person=isinstance(error, FailoverRefused))
        left = end - clock.monotonic()
        if back.is_done or back.for_a_person or left <= 0:
            return back
        await pause(min(_LOOK_SECONDS, left))


def _told(site: str, held: Sequence[Holding]) -> str | None:
    local = ", ".join(f"{each.entity} {each.local}" for each in held if each.local)
    if not local:
        return None
    return f"{site} holds {sum(each.local for each in held)} messages that were published there: {local}"


def _stranded(found: Mapping[str, Look]) -> str | None:
    """Return what is left where no consumers are, None for nothing."""
    told = [
        f"what {site} holds is not known, {each}" if isinstance(each, str) else _told(site, each)
        for site, each in found.items()
    ]
    return "; ".join(each for each in told if each is not None) or None
