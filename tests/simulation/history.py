"""One history: made from a seed, then held against the oracles."""

import asyncio
import contextlib
import gc
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn
from unittest.mock import patch

from tests.simulation import rerun_oracles, resend_oracles
from tests.simulation.backlogs import BACKLOGS, Backlog
from tests.simulation.event_loop import OrderedTaskGroup, SeededLoop, Stuck
from tests.simulation.judgement import Evidence, evidence
from tests.simulation.oracles import (
    REJECTED,
    Place,
    carriers,
    lost,
    objections,
    outcomes_of,
    places,
    planted,
    remove_copies,
    repeated,
)
from tests.simulation.rerun import RerunWorld
from tests.simulation.reruns import RERUNS, Rerun
from tests.simulation.resend import ResendWorld
from tests.simulation.topologies import TOPOLOGIES
from tests.simulation.topology import Topology
from tests.simulation.world import Scale, World

_SCALES = {
    Scale(messages=1, keys=1, rate=0.0, events=0, window=10.0): 2,
    Scale(messages=1, keys=1, rate=0.25, events=1, window=20.0): 8,
    Scale(messages=2, keys=1, rate=0.25, events=1, window=20.0): 12,
    Scale(messages=2, keys=1, rate=0.1, events=2, window=60.0): 10,
    Scale(messages=3, keys=1, rate=0.1, events=1, window=30.0): 8,
    Scale(messages=3, keys=2, rate=0.05, events=2, window=60.0): 4,
    Scale(messages=4, keys=2, rate=0.1, events=1, window=60.0): 2,
    Scale(messages=9, rate=0.08, events=3): 1,
    Scale(messages=3, rate=0.1, events=1, size=90_000, window=30.0): 1,
    Scale(messages=2, rate=0.02, events=2, window=1_500.0): 1,
    Scale(messages=2, rate=0.02, events=3, window=5_000.0): 1,
}
"""
And how often each is drawn.

Most are small: one to three messages break what more of them break, and many more histories fit into a second.
"""
_RESEND_SCALES = {
    Scale(messages=1, rate=0.0, events=0, window=10.0): 2,
    Scale(messages=1, keys=1, rate=0.15, events=2, window=20.0): 6,
    Scale(messages=2, keys=1, rate=0.1, events=2, window=30.0): 10,
    Scale(messages=2, keys=1, rate=0.08, events=4, window=20.0): 8,
    Scale(messages=3, keys=2, rate=0.05, events=3, window=30.0): 8,
    Scale(messages=3, rate=0.05, events=6, window=30.0): 4,
    Scale(messages=3, rate=0.0, events=8, window=10.0): 4,
    Scale(messages=7, rate=0.02, events=20, window=600.0): 1,
    Scale(messages=3, rate=0.05, events=3, size=90_000, window=60.0): 2,
}
_RERUN_SCALES = {
    Scale(messages=2, rate=0.0, events=0, window=20.0): 4,
    Scale(messages=4, keys=2, rate=0.0, events=0, window=20.0): 2,
    Scale(messages=3, keys=1, rate=0.05, events=1, window=30.0): 4,
    Scale(messages=6, rate=0.1, events=2, window=60.0): 1,
}
# 300,000 steps took 15 on a slow machine, at 50 µs each.
_MOST_SECONDS = 30
_REMOVES = 0.5
"""The probability that a copy is removed, where a tap watches the target."""
BY_NAME: Mapping[str, Topology] = {topology.name: topology for topology in (*TOPOLOGIES, *BACKLOGS, *RERUNS)}


@dataclass(frozen=True)
class Plan:
    """Everything that decides a history."""

    seed: int
    topology: str | None = None
    """Its name, None to draw one."""
    most_faults: int | None = None


@dataclass(frozen=True)
class History:
    """What came of it."""

    plan: Plan
    topology: str
    objections: tuple[str, ...]
    injected: Counter[str]
    drawn: int
    log: tuple[tuple[float, str], ...]
    steps: int
    seconds: float
    messages: int
    evidence: Evidence | None = None
    """What the job is to judge, None if the oracles have objections already."""
    world: World | ResendWorld | None = None


def run(plan: Plan, number: int = 0, *, keeps_world: bool = False) -> History:
    """Make the history of *plan*, which is judged as *number* of several."""
    chance = random.Random(plan.seed)
    topology = chance.choice((*TOPOLOGIES, *BACKLOGS, *RERUNS))
    if plan.topology is not None:
        topology = BY_NAME[plan.topology]
    world: World | ResendWorld
    if isinstance(topology, Backlog):
        world = ResendWorld(plan.seed, topology, _drawn(chance, _RESEND_SCALES), plan.most_faults)
        judge: Callable[[list[str]], Evidence | None] = partial(_resent, world)
    elif isinstance(topology, Rerun):
        world = RerunWorld(plan.seed, topology, _drawn(chance, _RERUN_SCALES), plan.most_faults)
        judge = partial(_rerun, world, number)
    else:
        scale = _drawn(chance, _SCALES)
        taps = min(chance.choice((0, 0, 1, 2)), topology.taps)
        loses = chance.choice((None, None, 3, 7)) if taps else None
        world = World(plan.seed, topology, scale, plan.most_faults, loses)
        judge = partial(_replicated, world, chance, number, taps)
    found: list[str] = []
    proof = None
    with seeded(plan.seed):
        try:
            with limited(world.loop):
                is_at_rest = world.run()
            if not is_at_rest:
                found.append("it did not come to rest")
            proof = judge(found)
        except (Exception, SystemExit) as error:  # that of `limited`, if it was not raised in a step of the loop
            found.append(f"an exception: {next(iter(world.loop.failures), error)!r}")
            if keeps_world:
                raise
        finally:
            world.loop.dispose()
    return History(
        plan,
        topology.name,
        tuple(found),
        world.faults.injected,
        world.faults.drawn,
        tuple(world.faults.log),
        world.loop.steps,
        world.loop.time(),
        len(world.accepted),
        proof,
        world if keeps_world else None,
    )


def _drawn(chance: random.Random, scales: Mapping[Scale, int]) -> Scale:
    (scale,) = chance.choices([*scales], [*scales.values()])
    return scale


def _replicated(world: World, chance: random.Random, number: int, taps: int, found: list[str]) -> Evidence | None:
    """Add to *found* what went wrong; if nothing did, return what the job is to judge."""
    outcomes = outcomes_of(world)
    on_purpose = planted(world)
    at_places = places(world, outcomes)
    found += objections(world, at_places, outcomes, on_purpose)
    if found:
        return None
    missing = lost(at_places)
    # A brief one may have expired. One that was settled unseen may have been sent before, without a record.
    unsure = {draft.name for draft in world.accepted if draft.kind == "brief"} | (on_purpose - missing)
    if world.topology.dead_letters:
        # Its rejection is on record before it is dead-lettered: if that failed, it is delivered again, and then lost.
        unsure |= {draft.name for draft in world.accepted if draft.kind in REJECTED and draft.name in on_purpose}
    if taps > 1 and not missing and chance.random() < _REMOVES:
        missing |= remove_copies(world, chance)
    again = repeated(at_places)
    if world.topology.detects and taps < 2:
        # That a target has dropped a copy, only a tap there can show.
        again = frozenset(draft.name for draft in world.accepted)
    if any(source.beyond for source in world.topology.inputs):
        again |= carriers(world, again)
    # Taps are at the targets of entities alone: what comes from a hub has a partition, which its copies do not name.
    watched = [place for place in at_places if taps > 1 and place.source.entity not in _hubs(world, place)]
    # What the application has sent twice may arrive twice.
    seen_twice = repeated(watched) - {draft.name for draft in world.accepted if draft.is_again}
    return evidence(
        world,
        number,
        missing - unsure,
        frozenset(unsure),
        again,
        duplicated=seen_twice - missing - unsure,
        source_taps=taps > 0,
        target_taps=taps > 1,
    )


def _hubs(world: World, place: Place) -> Container[str]:
    return world.sites[place.source.site].namespace.hubs


def _resent(world: ResendWorld, found: list[str]) -> None:
    """Add to *found* what went wrong."""
    found += resend_oracles.objections(world)


def _rerun(world: RerunWorld, number: int, found: list[str]) -> Evidence | None:
    """Add to *found* what went wrong; if nothing did, return what the job is to judge once more."""
    # Of a message that only some targets lack, a repair withholds the others.
    outcomes = {name: outcome for name, outcome in outcomes_of(world).items() if name not in world.keys}
    at_places = places(world, outcomes)
    found += rerun_oracles.objections(world, at_places, outcomes)
    # A repair of what only a tap elsewhere has seen records the number of its copy, which another message may have.
    if found or world.unnumbered:
        return None
    # One that a target has lost is missing only where a tap watches the target.
    missing, removed = lost(at_places) & planted(world), lost(at_places) - planted(world)
    unsure = removed | (planted(world) - missing)
    return evidence(
        world, number, missing, unsure, repeated(at_places) | {*world.keys}, source_taps=True, target_taps=False
    )


def shortest(plan: Plan, fails: Callable[[History], bool]) -> Plan:
    """Return the plan with the fewest faults, from the first on, that still *fails*."""
    for most in range(run(plan, plan.seed).drawn):
        shorter = replace(plan, most_faults=most)
        if fails(run(shorter, plan.seed)):
            return shorter
    return plan


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from the seed what the product draws at random, and collect no garbage, which may still have a last word."""
    chance, urandom = random.Random(seed), os.urandom
    state, collects = random.getstate(), gc.isenabled()
    random.seed(seed)
    os.urandom = chance.randbytes
    gc.disable()
    try:
        with (
            silent(),
            patch.object(asyncio, "TaskGroup", OrderedTaskGroup),
            patch("random._urandom", chance.randbytes),  # of `secrets`, which has its own name for os.urandom
        ):
            yield
    finally:
        os.urandom = urandom
        random.setstate(state)
        if collects:
            gc.enable()


@contextlib.contextmanager
def limited(loop: SeededLoop) -> Iterator[None]:
    """
    Let *loop* fail when it has computed for half a minute: code that never awaits ends in no step of it.

    The other timer of a process is that of `shared.time_limit`.
    """

    def end(*_: object) -> NoReturn:
        loop.failures.append(Stuck(f"{_MOST_SECONDS} s of processor time"))
        raise SystemExit  # which neither the product nor asyncio swallows

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, _MOST_SECONDS, _MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Log nothing. That takes longer the more loggers there are: many histories share it."""
    level = logging.root.manager.disable
    if level >= logging.CRITICAL:
        yield
        return
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
