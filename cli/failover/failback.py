"""
The way back, in the order of the federation article: publishers first, consumers when nothing is left for them.

1. Publishers go to the primary site. Nothing is lost by that.
2. They may send to the secondary for as long as they may use what they have read: the time to live of the register.
3. Consumers follow when the secondary holds nothing that was published there and that nobody carries to the primary.

Source: Microsoft Learn, "Message replication and cross-region federation", active-passive replication.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cli.failover.holdings import Holding
from cli.failover.register import FailoverRefused, Register, Standing
from shared.clock import Clock
from shared.config.failover import RECEIVE, SEND

MARGIN = timedelta(seconds=5)
"""How long after the time to live a send that was on its way is waited for."""


@dataclass(frozen=True)
class Failback:
    """How far it has come: what stays behind is what the secondary held when consumers left it."""

    standing: Standing
    held: Sequence[Holding]
    waits_for: str | None

    @property
    def is_done(self) -> bool:
        """Whether publishers and consumers are at the primary site."""
        return self.waits_for is None


async def fail_back(
    register: Register,
    primary: str,
    look: Callable[[str], Awaitable[Sequence[Holding]]],
    clock: Clock,
    *,
    shares_alias: bool,
    force: bool,
) -> Failback:
    """
    Go back as far as nothing is lost by it, or with *force* all the way; *look* tells what a site holds.

    Raises FailoverRefused where one step cannot be made: roles that share an alias go back together or not at all.
    """
    standing = register.read()
    secondary = standing.active[RECEIVE]
    held: Sequence[Holding] = [] if secondary == primary else await look(secondary)
    local = sum(each.local for each in held)
    if shares_alias:
        if local and not force:
            raise FailoverRefused(f"{secondary} still holds {local} messages that were published there: {_told(held)}")
        return Failback(register.write({SEND: primary, RECEIVE: primary}, standing), held, None)
    if standing.active[SEND] != primary:
        standing = register.write({SEND: primary}, standing)
    if secondary == primary or force:
        return Failback(register.write({RECEIVE: primary}, standing), held, None)
    since = standing.changed
    left = MARGIN if since is None else since + timedelta(seconds=standing.ttl_seconds) + MARGIN - clock.now()
    if since is not None and left > timedelta(0):
        waits = f"publishers may send to {secondary} for {left.total_seconds():.0f} s more (time to live)"
        return Failback(standing, held, waits)
    # Looked at again: what was published until now is there now.
    held = await look(secondary)
    local = sum(each.local for each in held)
    if local:
        return Failback(standing, held, f"{secondary} holds {local} messages that were published there")
    return Failback(register.write({RECEIVE: primary}, standing), held, None)


def _told(held: Sequence[Holding]) -> str:
    return ", ".join(f"{each.entity} {each.local}" for each in held if each.local)
