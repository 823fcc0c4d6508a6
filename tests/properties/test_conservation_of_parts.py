"""Random splits, joins, failures, refusals and outages: every part arrives once, after a replay if it was rejected."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.values import long, timestamp
from shared.errors import BuswayError, MessageRejected, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import BatchEditor, EditedTogether, Editor, Joined, Outcome, Outgoing
from tests.fakes import SOMEWHERE, JournalInMemory, OutputThatAccepts, clock_at_delivery, sleep_by
from tests.messages import ENQUEUED, delivered

ORIGIN = Origin("west", "orders")


class Plan(NamedTuple):
    """The failures of the first delivery, by the number of the part."""

    parts: Sequence[int]
    """The number of parts of each message."""
    joins: bool
    groups: Sequence[int]
    """The group into which each part is joined."""
    bad_before: frozenset[int]
    bad_in: frozenset[int]
    bad_behind: frozenset[int]
    raises: frozenset[int]
    refused: frozenset[int]
    sent_before_outage: int


def numbers(most: int) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(0, 19), max_size=most)


PLANS = st.builds(
    Plan,
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.booleans(),
    st.lists(st.integers(0, 3), min_size=20, max_size=20),
    numbers(1),
    numbers(2),
    numbers(2),
    numbers(1),
    numbers(3),
    st.integers(0, 25),
)


def numbers_in(message: Message) -> list[int]:
    return [int(each) for each in (message.body or b"").split(b"+")]


class Split:
    name = "split"

    def edit(self, message: Message) -> Sequence[Message]:
        parts = []
        for body in (message.body or b"").split(b","):
            part = message.copy()
            part.body = body
            parts.append(part)
        return parts


class Check:
    """Rejects some messages, and fails unexpectedly at others."""

    name = "check"

    def __init__(self, bad: set[int], raises: set[int]) -> None:
        self._bad, self._raises = bad, raises

    def edit(self, message: Message) -> Sequence[Message]:
        if self._raises.intersection(numbers_in(message)):
            raise KeyError(message.body)
        if self._bad.intersection(numbers_in(message)):
            raise MessageRejected("Bad", "it is bad")
        return [message]


class Join:
    """Joins the messages of each group, and rejects some."""

    name = "join"
    joins = True

    def __init__(self, groups: Sequence[int], bad: set[int]) -> None:
        self._groups, self._bad = groups, bad

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        assert timeout_seconds > 0
        results: list[EditedTogether] = []
        leaders: dict[int, int] = {}
        bodies: dict[int, list[bytes]] = {}
        for index, message in enumerate(messages):
            (number,) = numbers_in(message)
            if number in self._bad:
                results.append(MessageRejected("Bad", "it is bad"))
                continue
            leader = leaders.setdefault(self._groups[number], index)
            bodies.setdefault(leader, []).append(message.body or b"")
            results.append([message.copy()] if leader == index else Joined(leader))
        for leader, joined in bodies.items():
            result = results[leader]
            assert isinstance(result, list)
            result[0].body = b"+".join(joined)
        return results

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        pass


class Output(OutputThatAccepts):
    """Refuses some messages, and is unavailable once for a long time."""

    def __init__(self, refused: set[int], sent_before_outage: int) -> None:
        super().__init__()
        self._refused = refused
        self.left = sent_before_outage

    def answer(self, message: Outgoing, /) -> BuswayError | None:
        if self._refused.intersection(numbers_in(Message.received(message.content, SOMEWHERE))):
            return MessageRejected("Refused", "no")
        self.left -= 1
        return TargetUnavailable("away", retry_after=timedelta(days=1)) if self.left == -1 else None


@given(PLANS)
def test_every_part_is_sent_once_after_the_rejects_are_replayed(plan: Plan) -> None:
    bad_before, bad_in, bad_behind = set(plan.bad_before), set(plan.bad_in), set(plan.bad_behind)
    raises, refused = set(plan.raises), set(plan.refused)
    output, rejects, clock = Output(refused, plan.sent_before_outage), OutputThatAccepts(), clock_at_delivery()
    editors: list[Editor | BatchEditor] = [Split(), Check(bad_before, set())]
    if plan.joins:
        editors.append(Join(plan.groups, bad_in))
    editors.append(Check(bad_behind, raises))
    route = Route(Target(output, "east", "orders"))
    task = Task("copy", ORIGIN, editors, Router([route]), Target(rejects, "west", "rejected"), Keep(), None)
    pipeline = Pipeline(task, JournalInMemory(), clock, sleep_by(clock))
    batch, count = [], 0
    for number, parts in enumerate(plan.parts, 1):
        body = b",".join(b"%d" % each for each in range(count, count + parts))
        batch.append(delivered(number, body=body))
        count += parts
    try:
        asyncio.run(pipeline.run(batch))
    except TargetUnavailable:
        asyncio.run(pipeline.run(batch))
    for faults in (bad_before, bad_in, bad_behind, raises, refused):
        faults.clear()
    output.left = -1
    asyncio.run(
        pipeline.run([redelivered(message, number) for number, message in enumerate(rejects.messages("rejected"))])
    )
    sent = Counter(number for message in output.messages("orders") for number in numbers_in(message))
    assert sent == dict.fromkeys(range(count), 1)


def redelivered(reject: Message, number: int) -> bytes:
    """Return a message of `rejects` as it is delivered after it was sent to the source again."""
    reject.set_annotations({"x-opt-sequence-number": long(1000 + number), "x-opt-enqueued-time": timestamp(ENQUEUED)})
    return reject.encode()
