"""The way back step by step, on a register and sites that are told what they hold, with time as an argument."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.failover.entity_contents import EntityContents
from cli.failover.failback import FailbackSteps
from cli.failover.failback import wait_until_done as waited
from cli.failover.register import FailoverRefused, RegisterState
from shared.clock import ManualClock
from shared.errors import TargetUnavailable

START = datetime(2026, 11, 21, 19, 0, tzinfo=UTC)
TTL = 30


class RememberedRegister:
    """A register without a file."""

    where = "the register"

    def __init__(self, clock, send, receive, *, loading=None, knows_when: bool = True) -> None:
        self.clock = clock
        self.reload_command = loading
        self.knows_when = knows_when
        self.writes: list[Any] = []
        changed = clock.now() - timedelta(hours=1) if knows_when else None
        self.state = RegisterState({"send": send, "receive": receive}, TTL, "1", changed)

    def read(self):
        return self.state

    def changes(self, roles, state):
        return [f"{role} -> {site}" for role, site in roles.items() if state.active[role] != site]

    def write(self, roles, state):
        assert state == self.state
        self.writes.append(dict(roles))
        self.state = replace(
            state,
            active={**state.active, **roles},
            version=str(int(state.version) + 1),
            changed=self.clock.now() if self.knows_when else None,
        )
        return self.state


class Stage:
    """Sites and what they hold: a number of messages that were published there, or why that is unknown."""

    def __init__(self, send, receive, *, held=None, shares_alias: bool = False, **options) -> None:
        self.clock = ManualClock(START)
        self.register = RememberedRegister(self.clock, send, receive, **options)
        self.held = {"east": 0, "north": 0, **(held or {})}
        self.shares_alias = shares_alias

    def way(self):
        return FailbackSteps(
            self.register, "west", [*self.held], self.look, self.clock, self.clock.now(), shares_alias=self.shares_alias
        )

    async def look(self, site):
        held = self.held[site]
        return held if isinstance(held, str) else [EntityContents("payments", held + 5, held)]

    def step(self, way=None, known=None):
        return asyncio.run((way or self.way()).step(known))

    @property
    def active(self):
        return tuple(self.register.state.active.values())


def test_publishers_go_first_and_consumers_after_the_time_to_live_and_what_is_left() -> None:
    stage = Stage("east", "east", held={"east": 2})
    back = stage.step()
    assert (back.is_done, stage.active) == (False, ("west", "east"))
    assert back.waits_for == "publishers may send to east for 35 s more (time to live)"
    stage.clock.advance(34)
    stage.held["east"] = 3
    assert stage.step().waits_for == "publishers may send to east for 1 s more (time to live)"
    stage.clock.advance(1)
    assert stage.step().waits_for == "east holds 3 messages that were published there: payments 3"
    stage.held["east"] = 0
    assert stage.step().is_done
    assert stage.register.writes == [{"send": "west"}, {"receive": "west"}]


def test_what_publishers_leave_where_consumers_never_were_is_not_forgotten() -> None:
    stage = Stage("east", "west", held={"east": 1})
    back = stage.step()
    assert stage.active == ("west", "west")
    assert back.waits_for == "publishers may send to east for 35 s more (time to live)"
    stage.clock.advance(35)
    back = stage.step()
    assert back.waits_for == "east holds 1 messages that were published there: payments 1"
    assert back.advice == "Receive them there, or leave them behind with --force."
    stage.held["east"] = 0
    assert stage.step().is_done


def test_a_third_site_is_looked_at_too_and_keeps_consumers_nowhere() -> None:
    stage = Stage("west", "east", held={"north": 4})
    back = stage.step()
    assert stage.active == ("west", "west")
    assert back.waits_for == "north holds 4 messages that were published there: payments 4"
    stage.held["north"] = "north does not answer"
    stage.clock.advance(60)
    assert stage.step().waits_for == "the contents of north are unknown, north does not answer"


def test_a_site_of_consumers_that_cannot_be_looked_at_changes_nothing() -> None:
    stage = Stage("east", "east", held={"east": "east/payments: it cannot be peeked"})
    with pytest.raises(TargetUnavailable, match="east/payments: it cannot be peeked"):
        stage.step()
    assert stage.register.writes == []
    back = asyncio.run(stage.way().forced())
    assert (back.is_done, stage.register.writes) == (True, [{"send": "west", "receive": "west"}])


@pytest.mark.parametrize("active", [("south", "west"), ("west", "south")])
def test_a_site_that_nobody_can_look_into_is_not_left(active) -> None:
    stage = Stage(*active)
    with pytest.raises(FailoverRefused, match="the register: south is in use, expected one of west, east, north"):
        stage.step()
    assert stage.register.writes == []


def test_who_switches_meanwhile_is_not_overruled() -> None:
    stage = Stage("east", "east")
    back = stage.step()
    stage.register.write({"send": "east"}, stage.register.read())
    with pytest.raises(FailoverRefused, match="somebody has changed it meanwhile"):
        stage.step(known=back.state)
    assert stage.active == ("east", "east")


def wait_until_done(stage, seconds, *meanwhile):
    """Wait on the stage's clock; *meanwhile* is what happens in each pause."""
    way, happening = stage.way(), iter(meanwhile)

    async def pause(pause_seconds) -> None:
        stage.clock.advance(pause_seconds)
        next(happening, lambda: None)()

    return asyncio.run(waited(way.step, stage.clock, seconds, pause))


def test_a_site_that_is_away_for_a_while_does_not_end_the_wait() -> None:
    stage = Stage("east", "east")
    blip = [lambda: stage.held.update(east="away"), lambda: stage.held.update(east=0)]
    back = wait_until_done(stage, 60, *blip)
    assert (back.is_done, stage.active) == (True, ("west", "west"))
    assert stage.clock.now() - START == timedelta(seconds=36)


def test_what_ends_a_wait_is_told_with_what_has_been_done() -> None:
    stage = Stage("east", "east")
    back = wait_until_done(stage, 4, lambda: stage.held.update(east="away"))
    assert (back.waits_for, stage.active) == ("away", ("west", "east"))
    stage = Stage("east", "east")
    back = wait_until_done(stage, 60, lambda: stage.register.write({"send": "east"}, stage.register.read()))
    assert back.waits_for == "the register: somebody has changed it meanwhile, expected 2"
    assert stage.clock.now() - START == timedelta(seconds=2)
    with pytest.raises(TargetUnavailable):
        wait_until_done(Stage("east", "east", held={"east": "away"}), 60)


def test_roles_with_one_alias_wait_and_then_go_together() -> None:
    stage = Stage("east", "east", held={"east": 2}, shares_alias=True)
    back = stage.step()
    assert back.waits_for == (
        "east holds 2 messages that were published there: payments 2, and publishers use the same alias"
    )
    assert stage.register.writes == []
    stage.held["east"] = 0
    back = stage.step()
    assert stage.register.writes == [{"send": "west", "receive": "west"}]
    assert back.waits_for == "publishers may send to east for 35 s more (time to live)"
    stage.held["east"] = 1
    stage.clock.advance(35)
    assert stage.step().waits_for == "east holds 1 messages that were published there: payments 1"


def test_a_register_that_has_to_be_loaded_is_waited_for_from_when_that_was_done() -> None:
    stage = Stage("east", "east", loading="let the name server load the zone")
    back = stage.step()
    assert (stage.active, back.for_a_person) == (("west", "east"), True)
    assert back.advice == "Now let the name server load the zone, then run it again with --wait SECONDS."
    stage.clock.advance(3600)
    way = stage.way()
    back = stage.step(way)
    assert back.waits_for == "publishers may send to east for 35 s more (time to live)"
    assert back.advice == "Run it again with --wait SECONDS."
    stage.clock.advance(35)
    assert stage.step(way, back.state).is_done


def test_a_change_of_unknown_time_counts_as_made_when_the_wait_begins() -> None:
    stage = Stage("west", "east", knows_when=False)
    way = stage.way()
    assert stage.step(way).waits_for == "publishers may send to east for 35 s more (time to live)"
    stage.clock.advance(35)
    assert stage.step(way).is_done
