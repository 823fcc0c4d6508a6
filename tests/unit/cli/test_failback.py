"""The steps of a failback, with a register in memory, sites with given contents, and a manual clock."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cli.failover.contents import EntityContents
from cli.failover.failback import Failback, FailbackSteps, wait_until_done
from cli.failover.register import FailoverRefused, Register, RegisterState
from shared.clock import ManualClock
from shared.errors import TargetUnavailable

START = datetime(2026, 11, 21, 19, 0, tzinfo=UTC)
TTL = 30


class RegisterInMemory(Register[RegisterState]):
    """A register without a file."""

    where = "the register"

    def __init__(self, clock: ManualClock, send: str, receive: str, *, loading: str | None, knows_when: bool) -> None:
        self.clock = clock
        self.reload_command = loading
        self.knows_when = knows_when
        self.writes: list[dict[str, str]] = []
        changed = clock.now() - timedelta(hours=1) if knows_when else None
        self.state = RegisterState({"send": send, "receive": receive}, TTL, "1", changed)

    def _content(self) -> RegisterState:
        return self.state

    def _state(self, content: RegisterState) -> RegisterState:
        return content

    def _changes(self, content: RegisterState, roles: Mapping[str, str], state: RegisterState) -> Sequence[str]:  # noqa: ARG002 - it equals the state
        return [f"{role} -> {site}" for role, site in roles.items() if state.active[role] != site]

    def _point(self, content: RegisterState, roles: Mapping[str, str]) -> None:
        self.writes.append(dict(roles))
        version, changed = str(int(content.version) + 1), self.clock.now() if self.knows_when else None
        self.state = replace(content, active={**content.active, **roles}, version=version, changed=changed)


class Sites:
    """Sites with the number of messages that were published there, or the reason why it is unknown."""

    def __init__(
        self,
        send: str,
        receive: str,
        *,
        shares_alias: bool = False,
        loading: str | None = None,
        knows_when: bool = True,
        **held: int | str,
    ) -> None:
        self.clock = ManualClock(START)
        self.register = RegisterInMemory(self.clock, send, receive, loading=loading, knows_when=knows_when)
        self.held: dict[str, int | str] = {"east": 0, "north": 0, **held}
        self.shares_alias = shares_alias

    def steps(self) -> FailbackSteps:
        return FailbackSteps(
            self.register, "west", [*self.held], self.look, self.clock, self.clock.now(), shares_alias=self.shares_alias
        )

    async def look(self, site: str) -> list[EntityContents] | str:
        held = self.held[site]
        return held if isinstance(held, str) else [EntityContents("payments", held + 5, held)]

    def step(self, steps: FailbackSteps | None = None, known: RegisterState | None = None) -> Failback:
        return asyncio.run((steps or self.steps()).step(known))

    def after(self, seconds: float = 0, **held: int | str) -> str | None:
        """Return what a step waits for when *seconds* have passed and sites have these messages."""
        self.clock.advance(seconds)
        self.held |= held
        return self.step().waits_for

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(self.register.state.active.values())


STALE = "publishers may send to east for {} s more (time to live)"
HELD = "{} holds {} messages that were published there: payments {}"


def test_consumers_follow_publishers_after_the_time_to_live_and_the_remaining_messages() -> None:
    sites = Sites("east", "east", east=2)
    assert (sites.after(), sites.active) == (STALE.format(35), ("west", "east"))
    assert sites.after(34, east=3) == STALE.format(1)
    assert sites.after(1) == HELD.format("east", 3, 3)
    assert sites.after(east=0) is None
    assert sites.register.writes == [{"send": "west"}, {"receive": "west"}]


def test_messages_at_a_site_without_consumers_are_reported() -> None:
    sites = Sites("east", "west", east=1)
    assert (sites.after(), sites.active) == (STALE.format(35), ("west", "west"))
    assert sites.after(35) == HELD.format("east", 1, 1)
    assert sites.step().advice == "Receive them there, or leave them behind with --force."
    assert sites.after(east=0) is None


def test_a_third_site_is_inspected_and_does_not_delay_consumers() -> None:
    sites = Sites("west", "east", north=4)
    assert (sites.after(), sites.active) == (HELD.format("north", 4, 4), ("west", "west"))
    unknown = "the contents of north are unknown, north does not answer"
    assert sites.after(60, north="north does not answer") == unknown


def test_nothing_changes_if_the_consumers_site_cannot_be_inspected() -> None:
    sites = Sites("east", "east", east="east/payments: it cannot be peeked")
    with pytest.raises(TargetUnavailable, match="east/payments: it cannot be peeked"):
        sites.step()
    assert sites.register.writes == []
    back = asyncio.run(sites.steps().forced())
    assert (back.is_done, sites.register.writes) == (True, [{"send": "west", "receive": "west"}])


@pytest.mark.parametrize("active", [("south", "west"), ("west", "south")])
def test_an_active_site_that_is_not_configured_is_refused(active: tuple[str, str]) -> None:
    sites = Sites(*active)
    with pytest.raises(FailoverRefused, match="the register: south is in use, expected one of west, east, north"):
        sites.step()
    assert sites.register.writes == []


def test_a_concurrent_switch_is_not_overwritten() -> None:
    sites = Sites("east", "east")
    back = sites.step()
    sites.register.write({"send": "east"}, sites.register.read())
    with pytest.raises(FailoverRefused, match="someone else has changed it"):
        sites.step(known=back.state)
    assert sites.active == ("east", "east")


def wait(sites: Sites, seconds: float, *events: Callable[[], object]) -> Failback:
    """Wait with the sites' clock; one of *events* happens in each pause."""
    steps, remaining = sites.steps(), iter(events)

    async def pause(pause_seconds: float) -> None:
        sites.clock.advance(pause_seconds)
        next(remaining, lambda: None)()

    return asyncio.run(wait_until_done(steps.step, sites.clock, seconds, pause))


def test_a_short_outage_of_a_site_does_not_end_the_wait() -> None:
    sites = Sites("east", "east")
    back = wait(sites, 60, lambda: sites.held.update(east="unavailable"), lambda: sites.held.update(east=0))
    assert (back.is_done, sites.active) == (True, ("west", "west"))
    assert sites.clock.now() - START == timedelta(seconds=36)


def test_an_interrupted_wait_reports_the_reason_and_the_state() -> None:
    sites = Sites("east", "east")
    back = wait(sites, 4, lambda: sites.held.update(east="unavailable"))
    assert (back.waits_for, sites.active) == ("unavailable", ("west", "east"))
    sites = Sites("east", "east")
    back = wait(sites, 60, lambda: sites.register.write({"send": "east"}, sites.register.read()))
    assert back.waits_for == "the register: someone else has changed it, expected 2"
    assert sites.clock.now() - START == timedelta(seconds=2)
    with pytest.raises(TargetUnavailable):
        wait(Sites("east", "east", east="unavailable"), 60)


def test_roles_with_one_alias_wait_and_then_move_together() -> None:
    sites = Sites("east", "east", east=2, shares_alias=True)
    assert sites.after() == f"{HELD.format('east', 2, 2)}, and publishers use the same alias"
    assert sites.register.writes == []
    assert sites.after(east=0) == STALE.format(35)
    assert sites.register.writes == [{"send": "west", "receive": "west"}]
    assert sites.after(35, east=1) == HELD.format("east", 1, 1)


def test_the_time_to_live_of_a_zone_starts_when_it_was_loaded() -> None:
    sites = Sites("east", "east", loading="let the name server load the zone")
    back = sites.step()
    assert (sites.active, back.for_a_person) == (("west", "east"), True)
    assert back.advice == "Now let the name server load the zone, then run it again with --wait SECONDS."
    sites.clock.advance(3600)
    steps = sites.steps()
    back = sites.step(steps)
    assert (back.waits_for, back.advice) == (STALE.format(35), "Run it again with --wait SECONDS.")
    sites.clock.advance(35)
    assert sites.step(steps, back.state).is_done


def test_a_change_at_an_unknown_time_counts_from_the_start_of_the_wait() -> None:
    sites = Sites("west", "east", knows_when=False)
    steps = sites.steps()
    assert sites.step(steps).waits_for == STALE.format(35)
    sites.clock.advance(35)
    assert sites.step(steps).is_done
