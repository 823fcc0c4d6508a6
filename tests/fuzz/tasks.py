"""
Damaged messages for whole tasks, one for each editor: `python -m tests.fuzz tasks --seconds 60 --seed 1`.

The tasks are the golden cases of all editors, and tasks without editors between all kinds of namespaces, with routes.
Every message of a batch gets an outcome, and no editor fails with anything but a rejection. A case that does not hold
is printed as hexadecimal, to become a test.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from shared.amqp.sections import data, only_data, split
from shared.amqp.values import Malformed, int_, string
from shared.codecs.envelope import Event, Form, encode_event, envelopes
from shared.ends.registry import kind
from shared.journal.in_memory import MemoryJournal
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.mapping import restore_event
from shared.message.ttl import Remaining
from shared.protocols import Outcome
from shared.rules.rule import parse_action, parse_filter
from shared.tasks.steps import STEPS
from tests.editor_cases import assembled_task, prepared
from tests.fakes import OutputThatAccepts, clock_at_delivery, sleep_by
from tests.fuzz import campaign
from tests.fuzz.amqp import Mutator
from tests.fuzz.editors import damaged
from tests.messages import delivered
from tests.unit.editors.bombs import BODIES, PROPERTIES

_BUG = "this is a bug in the editor"
_KINDS: tuple[Form, ...] = ("service-bus", "event-hubs")
_RULES = (
    "priority > 5 AND sys.Label LIKE 'a%'",
    "note LIKE pattern OR EXISTS(sys.To)",
    "priority + 1 > amount * 2 OR property(note) IN ('a', 1, 2.5)",
    "sys.EnqueuedTimeUtc > '2026-01-01T00:00:00Z' AND NOT (flag = TRUE)",
)
_ACTION = "SET priority = priority + 1; SET sys.Label = note; REMOVE flag; SET copied = sys.MessageId"
# Messages of at most this size are damaged: what is cut out of them is seldom all of it.
_DAMAGED = 20_000
_MOST_SECONDS = 20.0


class Line(NamedTuple):
    """A task, and messages that it takes."""

    name: str
    task: Task
    contents: Sequence[bytes]
    partition: str | None


def lines() -> list[Line]:
    """Return the lines of all editors, and those between all kinds of namespaces."""
    found = []
    for verb in sorted(STEPS):
        case = prepared(verb)
        task = assembled_task(case, dry_run=True)
        partition = None if case.task.source.hub is None else "0"
        found.append(Line(verb, replace(task, rejects_in_a_row=None, rejects=_rejects()), case.contents, partition))
    ordinary = [
        delivered(1, named={"priority": int_(7), "note": string("abc"), "pattern": string("a%"), "flag": int_(1)}),
        delivered(2, body=b'{"id": 1}', session_id="s", named={"repl-path": string("north")}),
    ]
    for source in _KINDS:
        for target in _KINDS:
            found.append(Line(f"{source} to {target}", _between(source, target), ordinary, _partition(source)))
            texts = envelopes([encode_event(Event("west/orders", "1", source, each)) for each in ordinary], 10_000)
            opened = [delivered(3, message_id=None, body=text.encode()) for text in texts]
            task = replace(_between(source, target), opens_envelopes=True, restore=None)
            found.append(Line(f"envelopes of {source} to {target}", task, opened, _partition(source)))
    return found


def _partition(kind: Form) -> str | None:
    return "0" if kind == "event-hubs" else None


def _rejects() -> Target:
    return Target(OutputThatAccepts(), "west", "rejected")


def _between(source: Form, target: Form) -> Task:
    place = Target(OutputThatAccepts(), "east", "orders", kind(target).fit(source))
    routes = [Route(place, parse_filter(rule), parse_action(_ACTION)) for rule in _RULES]
    return Task(
        *("copy", Origin("west", "orders"), [], Router([*routes, Route(place)]), _rejects(), Remaining(), LoopGuard(4)),
        restore=restore_event if source == "event-hubs" else None,
        rejects_in_a_row=None,
    )


class Damage:
    """Damaged messages from a seed."""

    def __init__(self, seed: int) -> None:
        """Draw from *seed*."""
        self.draw = random.Random(seed)
        self._anything = Mutator(seed)

    def message(self, line: Line) -> bytes:
        """Return a message for *line* that may be damaged anywhere."""
        content = self.draw.choice(line.contents)
        match self.draw.randrange(8):
            case 0:
                return self._anything.next()
            case 1:
                return damaged(content, self.draw)
            case 2:
                return self._with(content, self.draw.choice(list(BODIES.values())))
            case 3:
                named = self.draw.choice(list(PROPERTIES.values()))
                return delivered(self.draw.randrange(100), named=named, body=b"{}")
            case _:
                return self._in_a_section(content)

    def _in_a_section(self, content: bytes) -> bytes:
        """Return *content* with damage inside one of its sections, mostly the body."""
        with suppress(Malformed):
            raw = split(content)
            section = self.draw.choice(["body", "body", "properties", "application_properties", "message_annotations"])
            before: bytes = getattr(raw, section)
            if section == "body":
                with suppress(Malformed):
                    return self._with(content, damaged(_data(before)[:_DAMAGED], self.draw))
            if before:
                setattr(raw, section, before[:5] + damaged(before[5:], self.draw))
            return raw.encode()
        return content

    @staticmethod
    def _with(content: bytes, body: bytes) -> bytes:
        raw = split(content)
        raw.body = data(body)
        return raw.encode()


def _data(body: bytes) -> bytes:
    found = only_data(body)
    return body if found is None else found


def check(line: Line, batch: Sequence[bytes]) -> list[str]:
    """Run *batch*; return the outcomes. An AssertionError, or another exception, is a bug."""
    journal, clock = MemoryJournal(), clock_at_delivery()
    started = time.thread_time()
    counts = asyncio.run(Pipeline(line.task, journal, clock, sleep_by(clock)).run(batch, line.partition))
    took = time.thread_time() - started
    assert took < _MOST_SECONDS, f"took {took:.1f} s"
    assert counts[Outcome.RETRY] == 0
    assert counts.total() == len(journal.records)
    assert counts.total() >= len(batch)
    for record in journal.records:
        assert _BUG not in (record.reason or ""), record.reason
    return [str(record.outcome) for record in journal.records]


def run(seed: int, cases: int | None = None, seconds: float | None = None) -> Counter[str]:
    """Try damaged messages until *cases* or *seconds* are reached; return how many there were of each outcome."""
    return campaign.run(_cases(Damage(seed), lines()), seed, cases, seconds)


def _cases(damage: Damage, tasks: Sequence[Line]) -> Iterator[campaign.Case]:
    while True:
        line = damage.draw.choice(tasks)
        batch = [damage.message(line) for _ in range(damage.draw.choice((1, 1, 3, 10)))]
        yield campaign.Case(line.name, batch, partial(check, line, batch))
