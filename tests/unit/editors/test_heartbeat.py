"""No message stops the event loop for longer than its budget, whatever editor it is for."""

import asyncio
import itertools
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from shared.amqp.values import Value, string
from shared.journal.in_memory import MemoryJournal
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router
from shared.message.message import Message
from shared.protocols import Outcome
from shared.rules.rule import parse_action, parse_filter
from shared.tasks.steps import STEPS
from tests.editor_cases import assembled_task, prepared
from tests.fakes import clock_at_delivery, sleep_by
from tests.messages import delivered
from tests.unit.editors.bombs import BODIES, PROPERTIES
from tests.unit.editors.test_bombs import BUDGET, MARGIN, is_in_time

pytestmark = pytest.mark.long


def bombs_for(verb: str) -> dict[str, bytes]:
    """Return messages of the editor's golden case with each body, and with all properties, of the corpus."""
    case = prepared(verb)
    origin = assembled_task(case).origin
    found: dict[str, bytes] = {}
    for name, body in BODIES.items():
        made = Message.received(case.contents[0], origin)
        made.body = body
        found[name] = made.encode()
    for name, named in PROPERTIES.items():
        made = Message.received(case.contents[0], origin)
        made.set_properties(named)
        found[name] = made.encode()
    return found


def stall(line: Pipeline, batch: list[bytes], partition: str | None) -> tuple[float, int]:
    """Return the longest processor time between two turns of another task, and how many messages have a result."""
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(time.thread_time())
            await asyncio.sleep(0)

    async def run() -> int:
        heart = asyncio.create_task(beat())
        await asyncio.sleep(0)
        counts = await line.run(batch, partition)
        await asyncio.sleep(0)
        heart.cancel()
        return counts.total() - counts[Outcome.RETRY]

    count = asyncio.run(run())
    return max(later - earlier for earlier, later in itertools.pairwise(beats)), count


def line_of(verb: str) -> tuple[Pipeline, str | None]:
    """Return a pipeline with one editor alone, that of the golden case."""
    case = prepared(verb)
    task = assembled_task(case, dry_run=True)
    index = next(index for index, step in enumerate(case.task.editors) if step.verb() == verb)
    rejects = task.router._routes[0].target
    alone = replace(task, editors=[task.editors[index]], rejects=rejects, rejects_in_a_row=None)
    clock = clock_at_delivery()
    partition = "0" if case.task.source.hub is not None else None
    return Pipeline(alone, MemoryJournal(), clock, sleep_by(clock)), partition


@pytest.mark.parametrize("verb", sorted(STEPS))
def test_event_loop_never_stalls_longer_than_the_budget_of_a_message(verb: str) -> None:
    line, partition = line_of(verb)
    asyncio.run(line.run(prepared(verb).contents, partition))  # loads the libraries
    stalls: dict[str, float] = {}
    for name, content in bombs_for(verb).items():
        # Several, so that a stall shows that grows with the batch.
        for _ in range(3):  # a machine that others use may slow down one of them
            seconds, count = stall(line, [content] * 3, partition)
            assert count >= 1, name
            stalls[name] = min(stalls.get(name, seconds), seconds)
            if stalls[name] <= BUDGET + MARGIN:
                break
    slow = {name: round(seconds, 2) for name, seconds in stalls.items() if not is_in_time(seconds)}
    assert not slow


RULES: Mapping[str, str] = {
    "pattern of the sender": "a LIKE b",
    "pattern of the sender, negated": "NOT (a LIKE b OR b LIKE a)",
    "many patterns of the sender": " OR ".join(["a LIKE b"] * 60),
    "constant pattern": "a LIKE '%" + "_a%" * 200 + "b'",
    "long sum": "+".join(["a"] * 300) + " = 'x'",
    "name of the sender": " OR ".join(["EXISTS(a) AND property(b) = 'x'"] * 20),
}
LONG: Mapping[str, Mapping[str, Value]] = {
    "wildcards": {"a": string("a" * 30_000), "b": string("%_a" * 10_000 + "b")},
    "one piece": {"a": string("a" * 30_000), "b": string("%" + "a" * 15_000 + "_b%")},
    "pieces": {"a": string("ab" * 15_000), "b": string("%" + "_b%" * 10_000 + "c")},
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_of_routes_have_the_same_budget(rule: str) -> None:
    task = assembled_task(prepared("filter"), dry_run=True)
    target = task.router._routes[0].target
    action = parse_action("SET c = " + "+".join(["a"] * 100))
    router = Router([Route(target, parse_filter(RULES[rule]), action), Route(target, None, action)])
    clock = clock_at_delivery()
    line = Pipeline(
        replace(task, editors=[], router=router, rejects=target, rejects_in_a_row=None),
        *(MemoryJournal(), clock, sleep_by(clock)),
    )
    for name, named in LONG.items():
        seconds, count = stall(line, [delivered(number, named=named) for number in range(3)], None)
        assert count == 3
        assert is_in_time(seconds), name
