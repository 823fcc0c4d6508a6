"""Editors of whole batches: joined messages share one outcome, and a store may be unavailable for a while."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from shared.amqp.sections import split
from shared.amqp.values import string
from shared.errors import BuswayError, MessageRejected, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.line.rejection import REASON
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import BatchEditor, EditedTogether, Editor, Joined, Outcome, Output, Withheld
from shared.rules import parse_filter
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
    OutputThatRejects,
    clock_at_delivery,
    sleep_by,
)
from tests.messages import delivered


class Together:
    """A batch editor that calls a function; it is unavailable for its first *faults* calls."""

    def __init__(
        self,
        edit: Callable[[Sequence[Message]], Sequence[EditedTogether]],
        *,
        name: str = "together",
        joins: bool = True,
        faults: int = 0,
        settling_faults: int = 0,
    ) -> None:
        self.name = name
        self.joins = joins
        self.given: list[list[str]] = []
        self.outcomes: list[list[tuple[int | None, Outcome]]] = []
        self._edit = edit
        self._faults = faults
        self._settling_faults = settling_faults

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        assert timeout_seconds > 0
        if self._faults:
            self._faults -= 1
            raise TargetUnavailable("store: away")
        self.given.append([body(message) for message in messages])
        return self._edit([message.copy() for message in messages])

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        assert timeout_seconds > 0
        if self._settling_faults:
            self._settling_faults -= 1
            raise TargetUnavailable("store: away")
        self.outcomes.append([(arrival.sequence_number, outcome) for arrival, outcome in outcomes])


class Alone:
    """An editor of single messages that calls a function."""

    name = "alone"

    def __init__(self, edit: Callable[[Message], Sequence[Message] | Withheld]) -> None:
        self._edit = edit

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        return self._edit(message)


class Line:
    """A pipeline from west/orders to east/orders, with rejects, in virtual time."""

    def __init__(
        self, *editors: Editor | BatchEditor, output: Output | None = None, routes: Sequence[Route] = ()
    ) -> None:
        self.output = output or OutputThatAccepts()
        self.rejects = OutputThatAccepts()
        self.journal = JournalInMemory()
        self.clock = clock_at_delivery()
        task = Task(
            "copy",
            Origin("west", "orders"),
            editors,
            Router(routes or [Route(Target(self.output, "east", "orders"))]),
            Target(self.rejects, "west", "rejected"),
            Keep(),
            None,
        )
        self.pipeline = Pipeline(task, self.journal, self.clock, sleep_by(self.clock))

    def run(self, *bodies: str, numbers: Sequence[int] | None = None) -> Counter[Outcome]:
        numbers = numbers or range(1, len(bodies) + 1)
        batch = [delivered(number, body=each.encode()) for number, each in zip(numbers, bodies, strict=True)]
        return asyncio.run(self.pipeline.run(batch))

    def sent(self) -> list[str]:
        assert isinstance(self.output, OutputThatAccepts)
        return [body(message) for message in self.output.messages("orders")]

    def ends(self) -> list[tuple[int | None, Outcome, str | None]]:
        return [(record.arrival.sequence_number, record.outcome, record.target) for record in self.journal.records]


def body(message: Message) -> str:
    return (message.body or b"").decode()


def one_envelope(messages: Sequence[Message]) -> Sequence[EditedTogether]:
    """Join all to the first."""
    if not messages:
        return []
    messages[0].body = "+".join(map(body, messages)).encode()
    messages[0].message_id = string("envelope")
    return [(messages[0],), *(Joined(0) for _ in messages[1:])]


def test_joined_messages_are_sent_as_one_and_each_has_its_own_outcome() -> None:
    line = Line(Together(one_envelope))
    assert line.run("a", "b", "c") == {Outcome.SENT: 3}
    assert line.sent() == ["a+b+c"]
    assert line.ends() == [(number, Outcome.SENT, "east/orders") for number in (1, 2, 3)]
    assert [record.message_id for record in line.journal.records] == ["envelope", "m-2", "m-3"]


def test_editors_before_and_after_a_join_run_in_their_order() -> None:
    def upper(message: Message) -> Sequence[Message]:
        message.body = body(message).upper().encode()
        return (message,)

    def without_b(message: Message) -> Sequence[Message] | Withheld:
        return Withheld("no b") if body(message) == "b" else (message,)

    line = Line(Alone(without_b), Together(one_envelope), Alone(upper))
    assert line.run("a", "b", "c") == {Outcome.SENT: 2, Outcome.FILTERED: 1}
    assert line.sent() == ["A+C"]
    assert [record.reason for record in line.journal.records] == [None, "alone: no b", None]


def test_refused_joined_message_rejects_each_of_its_messages() -> None:
    line = Line(Together(one_envelope), output=OutputThatRejects(lambda message: message.message_id == "envelope"))
    assert line.run("a", "b", "c") == {Outcome.REJECTED: 3}
    assert [body(message) for message in line.rejects.messages("rejected")] == ["a", "b", "c"]
    assert line.ends() == [(number, Outcome.REJECTED, "west/rejected") for number in (1, 2, 3)]


def test_invalid_message_is_rejected_and_the_others_are_joined() -> None:
    def all_but_b(messages: Sequence[Message]) -> Sequence[EditedTogether]:
        good = [message for message in messages if body(message) != "b"]
        joined = iter(one_envelope(good))
        results = [
            MessageRejected("NoB", "b is missing") if body(message) == "b" else next(joined) for message in messages
        ]
        return [
            Joined(next(index for index, message in enumerate(messages) if body(message) != "b"))
            if isinstance(result, Joined)
            else result
            for result in results
        ]

    line = Line(Together(all_but_b))
    assert line.run("b", "a", "c") == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    assert line.sent() == ["a+c"]
    (rejected,) = line.rejects.messages("rejected")
    assert body(rejected) == "b"
    assert dict(rejected.application_properties())[REASON].payload == "NoB"


def test_messages_joined_to_an_unrouted_one_are_withheld_too() -> None:
    output = OutputThatAccepts()
    line = Line(
        Together(one_envelope),
        output=output,
        routes=[Route(Target(output, "east", "orders"), parse_filter("kind = 'wanted'"))],
    )
    assert line.run("a", "b") == {Outcome.FILTERED: 2}
    assert [record.reason for record in line.journal.records] == ["no route takes it"] * 2


def test_duplicate_is_withheld_once_the_other_is_sent() -> None:
    def without_repeats(messages: Sequence[Message]) -> Sequence[EditedTogether]:
        firsts: dict[str, int] = {}
        return [
            (message,)
            if firsts.setdefault(body(message), index) == index
            else Joined(firsts[body(message)], Outcome.FILTERED, "there already")
            for index, message in enumerate(messages)
        ]

    line = Line(Together(without_repeats))
    assert line.run("a", "b", "a") == {Outcome.SENT: 2, Outcome.FILTERED: 1}
    assert line.sent() == ["a", "b"]
    assert line.ends()[2] == (3, Outcome.FILTERED, None)
    assert line.journal.records[2].reason == "together: there already"
    assert not any(record.is_joined for record in line.journal.records)


def test_a_redelivered_batch_joins_only_what_was_not_sent() -> None:
    editor = Together(one_envelope)
    line = Line(editor)
    line.run("a", "b")
    assert line.run("a", "b", "c", numbers=[1, 2, 3]) == {Outcome.SENT: 3}
    assert line.sent() == ["a+b", "c"]
    assert editor.given == [["a", "b"], ["c"]]
    assert [record.is_remembered for record in line.journal.records[2:]] == [True, True, False]


def test_message_twice_in_a_batch_is_joined_once() -> None:
    line = Line(Together(one_envelope))
    assert line.run("a", "b", "a", numbers=[1, 2, 1]) == {Outcome.SENT: 3}
    assert line.sent() == ["a+b"]


def test_an_envelope_is_sent_again_unchanged_after_an_outage_of_its_target() -> None:
    line = Line(Together(one_envelope), output=OutputThatFailsOnce())
    assert line.run("a", "b") == {Outcome.SENT: 2}
    assert line.sent() == ["a+b"]


def test_a_short_outage_of_the_store_holds_the_batch_and_changes_nothing() -> None:
    editor = Together(one_envelope, faults=3, settling_faults=2)
    line = Line(editor)
    assert line.run("a", "b") == {Outcome.SENT: 2}
    assert line.sent() == ["a+b"]
    assert editor.outcomes == [[(1, Outcome.SENT), (2, Outcome.SENT)]]


@pytest.mark.parametrize(
    ("faults", "settling_faults", "sent", "expected"),
    [(10**9, 0, [], (Outcome.RETRY, "store: away")), (0, 10**9, ["a+b"], (Outcome.SENT, None))],
)
def test_a_long_outage_of_the_store_leaves_the_batch_at_its_source_and_records_the_outcomes(
    faults: int, settling_faults: int, sent: list[str], expected: tuple[Outcome, str | None]
) -> None:
    line = Line(Together(one_envelope, faults=faults, settling_faults=settling_faults))
    with pytest.raises(TargetUnavailable, match="store: away"):
        line.run("a", "b")
    assert line.sent() == sent
    assert [(record.outcome, record.reason) for record in line.journal.records] == [expected] * 2


def test_during_an_outage_of_the_target_nothing_is_reported_as_sent() -> None:
    editor = Together(one_envelope)
    line = Line(editor, output=OutputThatIsDown())
    with pytest.raises(BuswayError):
        line.run("a", "b")
    assert editor.outcomes == []
    assert [record.outcome for record in line.journal.records] == [Outcome.RETRY] * 2


def test_unreadable_message_is_rejected_before_the_editor() -> None:
    editor = Together(one_envelope)
    line = Line(editor)
    batch = [delivered(1, body=b"a"), b"\x00\x53\x74\xc1\xff\x02", delivered(3, body=b"c")]
    assert asyncio.run(line.pipeline.run(batch)) == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    assert editor.given == [["a", "c"]]


def test_message_with_unreadable_properties_does_not_delay_others() -> None:
    raw = split(delivered(2, body=b"b"))
    raw.properties = b"\x00\x53\x73\xc0\x03\x0d\xa1\x7f"
    for editor in (
        Together(lambda each: [(one,) for one in each]),
        Together(lambda each: [Withheld("no")] * len(each)),
    ):
        line = Line(editor)
        counts = asyncio.run(line.pipeline.run([delivered(1, body=b"a"), raw.encode(), delivered(3, body=b"c")]))
        assert counts in ({Outcome.SENT: 2, Outcome.REJECTED: 1}, {Outcome.FILTERED: 3})


def test_split_before_a_join_is_allowed_and_after_it_refused() -> None:
    def in_two(message: Message) -> Sequence[Message]:
        parts = [message.copy(), message.copy()]
        for part, text in zip(parts, body(message), strict=True):
            part.body = text.encode()
        return parts

    line = Line(Alone(in_two), Together(one_envelope))
    assert line.run("ab", "cd") == {Outcome.SENT: 4}
    assert line.sent() == ["a+b+c+d"]
    assert [(record.arrival.sequence_number, record.part) for record in line.journal.records] == [
        (1, 0), (1, 1), (2, 0), (2, 1),
    ]  # fmt: skip
    line = Line(Together(one_envelope), Alone(in_two))
    assert line.run("a", "") == {Outcome.REJECTED: 2}
    assert [body(message) for message in line.rejects.messages("rejected")] == ["a", ""]


def test_an_editor_that_does_not_join_also_gets_messages_that_were_already_sent() -> None:
    editor = Together(lambda messages: [(message,) for message in messages], joins=False)
    line = Line(editor)
    line.run("a")
    assert line.run("a", "b", numbers=[1, 2]) == {Outcome.SENT: 2}
    assert line.sent() == ["a", "b"]
    assert editor.given == [["a"], ["a", "b"]]


def without_repeats(messages: Sequence[Message]) -> Sequence[EditedTogether]:
    """Join each message to the first with its body."""
    firsts: dict[str, int] = {}
    return [
        (message,)
        if firsts.setdefault(body(message), index) == index
        else Joined(firsts[body(message)], Outcome.FILTERED, "there already")
        for index, message in enumerate(messages)
    ]


def test_nested_joins_share_the_outcome() -> None:
    editors = Together(without_repeats), Together(one_envelope)
    line = Line(*editors)
    assert line.run("a", "b", "b") == {Outcome.SENT: 2, Outcome.FILTERED: 1}
    assert line.sent() == ["a+b"]
    assert line.ends()[2] == (3, Outcome.FILTERED, None)
    line = Line(*editors, output=OutputThatRejects(lambda message: message.message_id == "envelope"))
    assert line.run("a", "b", "b") == {Outcome.REJECTED: 3}
    assert [body(message) for message in line.rejects.messages("rejected")] == ["a", "b", "b"]


def test_messages_joined_to_a_withheld_one_are_withheld() -> None:
    line = Line(
        Together(without_repeats), Alone(lambda message: Withheld("no a") if body(message) == "a" else [message])
    )
    assert line.run("a", "b", "a") == {Outcome.SENT: 1, Outcome.FILTERED: 2}
    assert [record.reason for record in line.journal.records] == ["alone: no a", None, "alone: no a"]


def test_a_message_that_is_in_the_batch_twice_is_settled_once() -> None:
    editor = Together(one_envelope)
    line = Line(editor)
    line.run("a", "b", "a", numbers=[1, 2, 1])
    assert editor.outcomes == [[(1, Outcome.SENT), (2, Outcome.SENT)]]


def test_message_at_which_an_editor_fails_is_rejected_and_the_others_are_joined() -> None:
    """An untrusted producer may cause an unexpected exception, which must not hold the batch."""

    def fails_at_c(messages: Sequence[Message]) -> Sequence[EditedTogether]:
        if any(body(message) == "c" for message in messages):
            raise RecursionError("quotes the body")
        return one_envelope(messages)

    line = Line(Together(fails_at_c))
    assert line.run("a", "b", "c", "d", "e") == {Outcome.SENT: 4, Outcome.REJECTED: 1}
    assert sorted("+".join(line.sent())) == sorted("a+b+d+e")
    (rejected,) = line.rejects.messages("rejected")
    assert body(rejected) == "c"
    reason = rejected.application_property(REASON)
    assert reason is not None
    assert reason.payload == "RecursionError"


def test_batch_of_one_message_at_which_an_editor_fails_is_not_held() -> None:
    def fails(_: Sequence[Message]) -> Sequence[EditedTogether]:
        raise KeyError

    line = Line(Together(fails, joins=False))
    assert line.run("a") == {Outcome.REJECTED: 1}
