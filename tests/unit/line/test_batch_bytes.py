"""Messages that become too large together are sent one part of the batch after the other, and none suffers for it."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.dry_run.line import try_batches
from shared.amqp.values import string
from shared.codecs.envelope import Event, encode_event, envelopes
from shared.errors import MessageRejected, TargetUnavailable
from shared.line.binding_output import collecting
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import EditedTogether, Editor, Outcome, Postponed, Withheld
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
    SettlementInMemory,
    clock_at_delivery,
    sleep_by,
)
from tests.messages import delivered
from tests.unit.editors.deduplicating import editor as deduplicate
from tests.unit.line.test_binding_output import binding

KIB = 1024
WEST, CARRIER = Origin("west", "orders"), Origin("east", "carrier")


class Growing:
    """Gives each message a body of as many KiB as its body says, in parts if it says so: `3`, `2x5`, `no`, `bad`."""

    name = "growing"

    def __init__(self) -> None:
        self.edited = 0

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        self.edited += 1
        said = (message.body or b"").decode()
        if said == "no":
            return Withheld("it is withheld")
        if said == "bad":
            raise MessageRejected("Bad", "it is bad")
        count, _, size = said.rpartition("x")
        parts = []
        for number in range(int(count or 1)):
            part = message.copy()
            part.body = bytes(int(size) * KIB)
            if count:
                identity = message.message_id
                part.message_id = string(f"{'' if identity is None else identity.payload!s}/{number}")
            parts.append(part)
        return parts


class GrowingTogether:
    """The same for a batch."""

    name = "growing-together"
    joins = False

    def __init__(self) -> None:
        self.alone = Growing()

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:  # noqa: ARG002 - no store
        results: list[EditedTogether] = []
        for message in messages:
            try:
                results.append(self.alone.edit(message.copy()))
            except MessageRejected as error:
                results.append(error)
        return results

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        pass


class OneAtATime:
    """Postpones all but the first message."""

    name = "one-at-a-time"
    joins = False

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:  # noqa: ARG002 - no store
        return [(messages[0],), *[Postponed()] * (len(messages) - 1)]

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        pass


class Result(NamedTuple):
    """What a delivery has become."""

    sent: list[str | None]
    rejected: list[str | None]
    outcomes: list[tuple[int | None, str | None, Outcome, int | None]]
    calls: list[int]


class OutputThatMeasures(OutputThatAccepts):
    """Notes how many bytes it is given at once."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    async def send(self, entity, messages, *, timeout_seconds):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as above
        self.most = max(self.most, sum(len(message.content) for message in messages))
        return await super().send(entity, messages, timeout_seconds=timeout_seconds)


def task(output: OutputThatAccepts, editors: Sequence[object], limit: int, *, opens: bool = False) -> Task:
    router = Router([Route(Target(output, "east", "orders"))])
    rejects = Target(OutputThatAccepts(), "west", "rejected")
    made: list[Editor] = list(editors)  # type: ignore[arg-type]  # those of batches too
    return Task(
        *("copy", CARRIER if opens else WEST, made, router, rejects, Keep(), None),
        opens_envelopes=opens,
        batch_bytes=limit,
    )


def result(made: Task, batch: Sequence[bytes]) -> Result:
    journal, clock = JournalInMemory(), clock_at_delivery()
    counts = asyncio.run(Pipeline(made, journal, clock, sleep_by(clock)).run(batch))
    assert counts.total() == len(journal.records)
    output, rejects = made.router._routes[0].target.output, made.rejects
    assert isinstance(output, OutputThatAccepts)
    assert rejects is not None
    assert isinstance(rejects.output, OutputThatAccepts)
    outcomes = [
        (record.arrival.sequence_number, record.message_id, record.outcome, record.part) for record in journal.records
    ]
    return Result(output.ids("orders"), rejects.output.ids("rejected"), outcomes, output.calls)


def batch_of(*said: str) -> list[bytes]:
    return [delivered(number, body=each.encode()) for number, each in enumerate(said, 1)]


def enveloped(*envelopes_said: Sequence[str]) -> list[bytes]:
    """Return envelopes with messages that say these."""
    numbers = iter(range(1, 10_000))
    texts = []
    for said in envelopes_said:
        events = []
        for each in said:
            number = next(numbers)
            content = Message.received(delivered(number, body=each.encode()), WEST).encode()
            events.append(encode_event(Event("west/orders", str(number), "service-bus", content)))
        texts.append(envelopes(events, 10_000_000)[0])
    return [delivered(number, message_id=None, body=text.encode()) for number, text in enumerate(texts, 1)]


said = st.sampled_from(["1", "3", "9", "40", "2x2", "3x5", "no", "bad"])
limits = st.sampled_from([10 * KIB, 30 * KIB, 60 * KIB])


@given(st.lists(said, max_size=12), limits, st.booleans())
def test_each_message_has_the_same_result_whatever_its_neighbours(
    batch: list[str], limit: int, is_together: bool
) -> None:
    def outcome(most: int) -> Result:
        editor = GrowingTogether() if is_together else Growing()
        return result(task(OutputThatAccepts(), [editor, deduplicate()], most), batch_of(*batch))

    alone = [result(task(OutputThatAccepts(), [Growing()], limit), [each]).outcomes[0][2] for each in batch_of(*batch)]
    too_large = {
        number for number, outcome in enumerate(alone, 1) if outcome is Outcome.REJECTED and batch[number - 1] != "bad"
    }
    few, all_at_once = outcome(limit), outcome(sys.maxsize)
    assert few.sent == [
        each for each in all_at_once.sent if each is None or int(each[2:].partition("/")[0]) not in too_large
    ]
    assert [outcome for outcome in few.outcomes if outcome[0] not in too_large] == [
        outcome for outcome in all_at_once.outcomes if outcome[0] not in too_large
    ]
    assert {outcome[0] for outcome in few.outcomes if outcome[2] is Outcome.REJECTED} == too_large | {
        number for number, each in enumerate(batch, 1) if each == "bad"
    }


@given(st.lists(st.lists(said.filter(lambda each: "x" not in each), min_size=1, max_size=6), max_size=4), limits)
def test_messages_of_envelopes_have_the_same_results_too(batch: list[list[str]], limit: int) -> None:
    def outcome(most: int) -> Result:
        made = task(OutputThatAccepts(), [Growing()], most, opens=True)
        return result(made, enveloped(*batch))

    few, all_at_once = outcome(limit), outcome(sys.maxsize)
    assert few.sent == all_at_once.sent
    assert len(few.rejected) == len(all_at_once.rejected)
    assert few.outcomes == all_at_once.outcomes


def test_envelopes_with_many_messages_are_opened_one_part_of_the_batch_after_the_other() -> None:
    """An opened message takes more memory than its few bytes in an envelope."""
    made = task(OutputThatAccepts(), [], 300 * KIB, opens=True)
    found = result(made, enveloped(*[["1"] * 30] * 6))
    assert len(found.sent) == 180
    assert found.calls == [60, 60, 60]


@pytest.mark.parametrize("again", [False, True])
def test_envelope_that_passes_in_several_batches_is_settled_by_itself(*, again: bool) -> None:
    output, released = OutputThatAccepts(), list[int]()

    async def release(positions: Sequence[int]) -> None:
        released.extend(positions)

    [envelope] = enveloped(["20"] * 12)
    batch = [envelope, envelope] if again else [envelope]
    pipeline = Pipeline(task(output, [Growing()], 100 * KIB, opens=True), JournalInMemory(), clock_at_delivery())
    assert asyncio.run(pipeline.run_each(batch, [None] * len(batch), release)) is None
    assert sorted(released) == list(range(len(batch)))
    assert len(output.ids("orders")) == 12
    assert len(output.calls) > 2


def test_no_more_than_the_limit_is_sent_at_once() -> None:
    output = OutputThatMeasures()
    made = task(output, [Growing()], 100 * KIB)
    assert len(result(made, batch_of(*["20"] * 20)).sent) == 20
    assert 80 * KIB < output.most < 100 * KIB
    assert len(output.calls) == 5


def test_what_waits_is_not_edited_again_and_again() -> None:
    editor = Growing()
    assert len(result(task(OutputThatAccepts(), [editor, Growing2()], 100 * KIB), batch_of(*["20"] * 100)).sent) == 100
    assert editor.edited < 350


class Growing2:
    """Makes nothing larger."""

    name = "growing-2"

    def edit(self, message: Message) -> Sequence[Message]:
        return [message]


def test_message_that_is_too_large_alone_goes_alone() -> None:
    found = result(task(OutputThatAccepts(), [Growing()], 12 * KIB), batch_of("1", "500", "1", "1"))
    assert found.sent == ["m-1", "m-2", "m-3", "m-4"]
    assert found.rejected == []
    assert found.calls == [1, 1, 2]


def test_message_whose_parts_are_too_large_together_is_rejected_alone() -> None:
    made = task(OutputThatAccepts(), [Growing()], 50 * KIB)
    found = result(made, batch_of("1", "10x10", "1"))
    assert found.sent == ["m-1", "m-3"]
    assert found.rejected == ["m-2"]
    assert isinstance(made.rejects, Target)
    assert isinstance(made.rejects.output, OutputThatAccepts)
    [message] = made.rejects.output.messages("rejected")
    reason = message.application_property("repl-reject-reason")
    assert reason is not None
    assert reason.payload == "MessageTooLarge"


def test_many_small_parts_count_with_what_is_known_of_them() -> None:
    """A part takes memory even if its body is empty."""
    made = task(OutputThatAccepts(), [Growing()], 200 * KIB)
    found = result(made, batch_of("30x0", "30x0", "60x0"))
    assert len(found.sent) == 60
    assert found.rejected == ["m-3"]


def test_editor_may_let_messages_wait() -> None:
    found = result(task(OutputThatAccepts(), [OneAtATime()], sys.maxsize), batch_of("1", "2", "3", "4"))
    assert found.sent == ["m-1", "m-2", "m-3", "m-4"]
    assert found.calls == [1, 1, 1, 1]


def test_nothing_behind_is_sent_before_a_target_has_recovered() -> None:
    output = OutputThatFailsOnce(after=3, error=TargetUnavailable("away"))
    assert result(task(output, [Growing()], 20 * KIB), batch_of(*["9"] * 6)).sent == [
        f"m-{each}" for each in range(1, 7)
    ]


def test_function_hands_over_what_all_parts_of_the_batch_have_become() -> None:
    output = binding()
    target = Target(output, "east", "carrier", binding=output)
    made = replace(task(OutputThatAccepts(), [Growing()], 50 * KIB), router=Router([Route(target)]))
    journal, clock = JournalInMemory(), clock_at_delivery()
    with collecting() as collected:
        asyncio.run(Pipeline(made, journal, clock, sleep_by(clock)).run(batch_of("20", "20", "20", "20", "1")))
    assert len(collected[output]) == 5
    assert [record.outcome for record in journal.records] == [Outcome.SENT] * 5
    assert [record.arrival.sequence_number for record in journal.records] == [1, 2, 3, 4, 5]


class OutputThatIsDownForThird(OutputThatAccepts):
    """Is away from the third message on."""

    def answer(self, message, /):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as above
        return TargetUnavailable("target/entity: away") if message.message_id == "m-3" else None


def test_what_was_handed_over_stays_at_the_source_if_a_later_message_does() -> None:
    output = binding()
    down = OutputThatIsDownForThird()

    class Routed(Router):
        def route(self, message: Message) -> Sequence[Target]:
            identity = message.message_id
            is_third = identity is not None and identity.payload == "m-3"
            return [Target(down, "east", "orders") if is_third else Target(output, "east", "carrier", binding=output)]

    made = task(down, [Growing()], 25 * KIB)
    made = replace(made, router=Routed([Route(Target(output, "east", "carrier", binding=output))]))
    journal, clock = JournalInMemory(), clock_at_delivery()
    with collecting(), pytest.raises(TargetUnavailable):
        asyncio.run(Pipeline(made, journal, clock, sleep_by(clock)).run(batch_of("20", "20", "20", "20")))
    found = [(record.arrival.sequence_number, record.outcome) for record in journal.records]
    assert found == [(1, Outcome.RETRY), (2, Outcome.RETRY), (3, Outcome.RETRY)]


@pytest.mark.parametrize("opens", [False, True])
def test_dry_run_shows_each_message_once(*, opens: bool) -> None:
    batch = enveloped(["9"], ["no"], ["9"] * 4, ["bad"]) if opens else batch_of("9", "no", "9", "bad", "9", "9")
    made = replace(task(OutputThatAccepts(), [Growing()], 25 * KIB, opens=opens), dry_run=True)
    few = asyncio.run(try_batches(made, [(None, batch)], clock_at_delivery()))
    made = replace(made, batch_bytes=sys.maxsize)
    at_once = asyncio.run(try_batches(made, [(None, batch)], clock_at_delivery()))
    assert [[(end.outcome, end.message_id) for end in each.ends] for each in few] == [
        [(end.outcome, end.message_id) for end in each.ends] for each in at_once
    ]
    if not opens:
        assert [[step.name for step in each.steps] for each in few] == [
            [step.name for step in each.steps] for each in at_once
        ]


def test_locks_of_messages_that_wait_are_renewed_and_each_bad_message_is_dead_lettered_once() -> None:
    clock = clock_at_delivery()
    settlement = SettlementInMemory(clock)
    output = OutputThatIsDown(retry_after=50)
    made = replace(task(output, [Growing()], 16 * KIB), rejects=None, settlement=settlement)

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if clock.monotonic() > 200:
            output.put_up()

    said = ("bad", "9", "9", "bad", "9")
    tokens = [bytes((number,)) * 16 for number in range(len(said))]
    counts = asyncio.run(Pipeline(made, JournalInMemory(), clock, sleep).run(batch_of(*said), lock_tokens=tokens))
    assert counts == {Outcome.SENT: 3, Outcome.REJECTED: 2}
    assert [token for token, *_ in settlement.dead] == [tokens[0], tokens[3]]
    assert len(settlement.times) > 2
    assert {token for _, token in settlement.renewed} == set(tokens[1:])
    assert output.ids("orders") == ["m-2", "m-3", "m-5"]
