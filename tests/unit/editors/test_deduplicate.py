"""Which messages count as duplicates, how long their ids are remembered, and that no failure loses a message."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.amqp.values import NULL, boolean, int_, long, string, symbol
from shared.editors.deduplicate import Deduplicate
from shared.editors.filter import FilterStep
from shared.editors.split import SplitStep
from shared.editors.state.sent_ids import OwnIds
from shared.errors import BuswayError, ConfigError, MessageRejected, TargetUnavailable
from shared.message.message import Message
from shared.protocols import Joined, Outcome, Withheld
from tests.fakes import (
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
    OutputThatRejects,
    clock_at_delivery,
    task_facts,
)
from tests.messages import delivered, message
from tests.unit.editors.deduplicating import Line, asked, editor


def settled(deduplicate: Deduplicate, messages: Sequence[Message], outcome: Outcome = Outcome.SENT) -> None:
    outcomes = [(each.arrival, outcome) for each in messages]
    asyncio.run(deduplicate.settled(outcomes, timeout_seconds=5))


def is_repeat(deduplicate: Deduplicate, first: Message, second: Message) -> bool:
    """Return whether the second is withheld once the first is sent."""
    asked(deduplicate, [first])
    settled(deduplicate, [first])
    (result,) = asked(deduplicate, [second])
    return isinstance(result, Withheld)


def test_a_message_with_the_id_of_one_that_was_sent_is_withheld_with_the_reason() -> None:
    line = Line(editor())
    assert line.run((1, "a"), (2, "b")) == {Outcome.SENT: 2}
    assert line.run((3, "a"), (4, "c")) == {Outcome.FILTERED: 1, Outcome.SENT: 1}
    assert line.output.ids("orders") == ["a", "b", "c"]
    assert line.journal.records[2].reason == "deduplicate: a message with this sys.MessageId was sent before"
    assert line.journal.records[2].message_id == "a"


@pytest.mark.parametrize(
    ("options", "first", "second", "expected"),
    [
        ({}, {"message_id": "a"}, {"message_id": "a"}, True),
        ({}, {"message_id": "a"}, {"message_id": "A"}, False),
        ({}, {"message_id": long(7)}, {"message_id": int_(7)}, True),
        ({}, {"message_id": long(7)}, {"message_id": "7"}, False),
        ({}, {"message_id": None}, {"message_id": None}, False),
        ({}, {"message_id": "a", "session_id": "s"}, {"message_id": "a", "session_id": "t"}, True),
        ({"per_session": True}, {"message_id": "a", "session_id": "s"}, {"message_id": "a", "session_id": "t"}, False),
        ({"per_session": True}, {"message_id": "a", "session_id": "s"}, {"message_id": "a", "session_id": "s"}, True),
        ({"by": "Key"}, {"named": {"key": string("k")}}, {"named": {"KEY": symbol("k")}}, True),
        ({"by": "key"}, {"named": {"key": string("k")}}, {"named": {"key": string("l")}}, False),
        ({"by": "key"}, {"named": {"key": int_(1)}}, {"named": {"key": boolean(True)}}, False),
        ({"by": "key"}, {"named": {"key": NULL}}, {"named": {"key": NULL}}, False),
        ({"by": "sys.CorrelationId"}, {"correlation_id": string("k")}, {"correlation_id": string("k")}, True),
    ],
)
def test_the_options_decide_what_identifies_a_message(options: Any, first: Any, second: Any, expected: bool) -> None:
    assert is_repeat(editor(**options), message(1, **first), message(2, **second)) is expected


def test_an_id_is_remembered_for_the_window_and_no_longer() -> None:
    clock = clock_at_delivery()
    deduplicate = editor(clock, window="PT10M")
    assert is_repeat(deduplicate, message(1, message_id="a"), message(2, message_id="a"))
    clock.advance(599)
    assert isinstance(asked(deduplicate, [message(3, message_id="a")])[0], Withheld)
    clock.advance(1)
    assert not isinstance(asked(deduplicate, [message(4, message_id="a")])[0], Withheld)


def test_the_number_of_remembered_ids_is_limited() -> None:
    deduplicate = editor(max_count=2)
    messages = [message(number, message_id=str(number)) for number in (1, 2, 3)]
    asked(deduplicate, messages)
    settled(deduplicate, messages)
    again = [message(10 + number, message_id=str(number)) for number in (1, 2, 3)]
    assert sum(isinstance(each, Withheld) for each in asked(deduplicate, again)) == 2


def test_a_message_without_an_id_passes_or_is_rejected() -> None:
    assert asked(editor(), [message(1, message_id=None)]) != []
    (result,) = asked(editor(by="key", missing="reject"), [message(1)])
    assert isinstance(result, MessageRejected)
    assert str(result) == "IdMissing: has no key, which identifies duplicates"


def test_a_missing_app_setting_of_the_store_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="task copy: deduplicate: app setting STORE: the app setting is missing"):
        editor(store={"setting": "STORE"})


def test_of_two_duplicates_in_one_delivery_the_second_shares_the_outcome_of_the_first() -> None:
    messages = [message(1, message_id="a"), message(2, message_id="b"), message(3, message_id="a")]
    assert asked(editor(), messages)[2] == Joined(
        0, Outcome.FILTERED, "a message with this sys.MessageId is in the same delivery"
    )
    line = Line(editor())
    assert line.run((1, "a"), (2, "b"), (3, "a")) == {Outcome.SENT: 2, Outcome.FILTERED: 1}
    line = Line(editor(), output=OutputThatRejects(lambda outgoing: outgoing.message_id == "a"))
    assert line.run((1, "a"), (2, "b"), (3, "a")) == {Outcome.SENT: 1, Outcome.REJECTED: 2}
    assert line.rejects.ids("rejected") == ["a", "a"]
    assert line.run((4, "a")) == {Outcome.REJECTED: 1}


def test_a_message_whose_send_failed_is_not_withheld_at_its_redelivery() -> None:
    output = OutputThatIsDown()
    line = Line(editor(), output=output)
    with pytest.raises(TargetUnavailable):
        line.run((1, "a"))
    output.put_up()
    assert line.run((1, "a")) == {Outcome.SENT: 1}
    assert line.run((2, "a")) == {Outcome.FILTERED: 1}


def test_an_id_that_could_not_be_stored_is_remembered_at_the_redelivery() -> None:
    deduplicate, first = editor(), message(message_id="a")
    asked(deduplicate, [first])
    again = replace(first.arrival, locked_until=1_800_000_000_000)  # each delivery has a lock of its own
    asyncio.run(deduplicate.settled([(again, Outcome.SENT)], timeout_seconds=5))
    (result,) = asked(deduplicate, [message(message_id="a")])
    assert isinstance(result, Withheld)


def test_a_message_that_a_later_editor_withholds_is_not_remembered() -> None:
    urgent = FilterStep.model_validate({"filter": "sys.SequenceNumber > 1"}).editor(task_facts())
    line = Line(editor(), urgent)
    assert line.run((1, "a")) == {Outcome.FILTERED: 1}
    assert line.run((2, "a")) == {Outcome.SENT: 1}


def test_ids_of_parts_are_remembered_when_all_parts_are_sent() -> None:
    splitting = SplitStep.model_validate({"split": {}}).editor(task_facts())
    output = OutputThatFailsOnce(after=1)
    clock = clock_at_delivery()
    line = Line(splitting, editor(clock, by="sys.Size"), output=output, clock=clock)
    batch = [delivered(1, body=b"[1, 22, 333, 1]")]
    assert line.deliver(batch) == {Outcome.SENT: 3, Outcome.FILTERED: 1}
    again = [delivered(2, body=b"[1, 4444]")]
    assert line.deliver(again) == {Outcome.SENT: 1}
    rejecting = OutputThatRejects(lambda outgoing: b"22" in outgoing.content)
    line = Line(splitting, editor(by="sys.Size"), output=rejecting)
    assert line.deliver(batch)[Outcome.REJECTED] == 1
    # Which of the parts was sent is not known, so that none counts as sent.
    assert line.deliver(again) == {Outcome.SENT: 2}


def test_a_part_that_was_not_sent_is_not_withheld_as_a_duplicate() -> None:
    """Parts cannot be distinguished at settlement: one joins another, one is sent, one is left at the source."""
    deduplicate = editor(by="part")
    first, second, repeated = (message(1, named={"part": string(part)}) for part in ("a", "b", "a"))
    other = message(2, named={"part": string("b")})
    asked(deduplicate, [first, second, repeated])
    outcomes = [(first.arrival, Outcome.SENT), (first.arrival, Outcome.FILTERED)]
    asyncio.run(deduplicate.settled(outcomes, timeout_seconds=5))
    for _ in range(2):
        # What has been sent, and what was joined to it, is not given again.
        (result,) = asked(deduplicate, [second])
        assert result == (second,)
        asyncio.run(deduplicate.settled(outcomes, timeout_seconds=5))
    settled(deduplicate, [first, second])
    assert not isinstance(asked(deduplicate, [other])[0], Withheld)
    asyncio.run(deduplicate.settled([*outcomes, (first.arrival, Outcome.SENT)], timeout_seconds=5))
    assert isinstance(asked(deduplicate, [other])[0], Withheld)


@given(
    deliveries=st.lists(
        st.tuples(
            st.lists(
                st.tuples(st.integers(1, 6), st.sampled_from("abc")), min_size=1, max_size=4, unique_by=lambda m: m[0]
            ),
            st.integers(0, 4),
            st.sampled_from(["", "down", "reject a"]),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_no_message_is_lost_at_any_failure(tmp_path_factory: pytest.TempPathFactory, deliveries: Any) -> None:
    """Deliver batches to two instances, with targets that fail half-way and instances that restart."""
    path = tmp_path_factory.mktemp("ids") / "store.db"
    clock, output = clock_at_delivery(), Flaky()
    id_of: dict[int, str] = {}

    def instance() -> Line:
        options = {"settings": {"STORE": f"file:{path}"}, "store": {"setting": "STORE"}}
        return Line(editor(clock, **options), output=output, clock=clock)

    lines = [instance(), instance()]
    used = list(lines)
    at_source: dict[int, str] = {}
    for numbered, after, fault, is_new in deliveries:
        if is_new:
            lines[1] = instance()
            used.append(lines[1])
        lines.reverse()
        batch = [(number, id_of.setdefault(number, identity)) for number, identity in numbered]
        at_source |= dict(batch)
        output.fail(after, fault)
        with suppress(BuswayError):
            lines[0].run(*batch)
            for number, _ in batch:
                del at_source[number]
    output.fail(0, "")
    for item in at_source.items():
        lines[0].run(item)
    accepted = output.ids("orders")
    rejected = {id_of[number] for line in used for number in line.numbers(Outcome.REJECTED)}
    for line in used:
        for number in line.numbers(Outcome.FILTERED):
            assert id_of[number] in accepted
    assert set(id_of.values()) <= {*accepted, *rejected}


class Flaky(OutputThatAccepts):
    """Accepts some messages, and then none, or none with a certain id."""

    def fail(self, after: int, fault: str) -> None:
        self._after, self._fault = after, fault

    def answer(self, outgoing: Any, /) -> Any:
        if self._fault == "reject a" and outgoing.message_id == "a":
            return MessageRejected("TargetRefusedMessage", "target/entity: no")
        if self._fault == "down":
            self._after -= 1
            if self._after < 0:
                return TargetUnavailable("target/entity: away")
        return None


def test_the_memory_of_one_instance_is_bounded() -> None:
    clock = clock_at_delivery()
    ids = OwnIds(timedelta(hours=1), 1000, clock)
    asyncio.run(ids.remember([bytes([number % 256, number // 256]) for number in range(3000)], 1))
    assert len(ids) == 1000
    clock.advance(3600)
    asyncio.run(ids.remember([b"last"], 1))
    assert len(ids) == 1
