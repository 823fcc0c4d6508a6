"""Messages that an editor splits: each part is sent once, or recorded as not sent."""

from collections.abc import Mapping, Sequence
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.values import Value, int_, string
from shared.errors import MessageRejected
from shared.line.rejection import DESCRIPTION, PART, PARTS, REASON, SEQUENCE, SOURCE, TASK
from shared.message.message import Message
from shared.protocols import Outcome
from tests.fakes import OutputThatAccepts, OutputThatRejects
from tests.messages import delivered
from tests.unit.line.copying import Editing, Line, texts

ONLY = "repl-reject-part asks for part 1 of 3 only"
STAMPS = {TASK: "copy", SOURCE: "west/orders", PART: "1", PARTS: "3"}


def several(message: Message, total: int) -> Sequence[Message]:
    parts = [message.copy() for _ in range(total)]
    for number, part in enumerate(parts):
        part.message_id = string(f"part-{number}")
    return parts


def refuse(_: Message) -> Sequence[Message]:
    raise MessageRejected("Poison", "it is poison")


def replay(rejected: Message, number: int) -> bytes:
    """Return a message of `rejects` as the source delivers it after an operator has sent it there."""
    return delivered(number, named=dict(rejected.application_properties()), body=rejected.body or b"")


def stamps(values: Mapping[str, str]) -> dict[str, Value]:
    return {name: string(text) for name, text in values.items()}


def test_if_all_parts_are_refused_each_reject_names_its_part_and_replaying_them_sends_each_once() -> None:
    output = OutputThatRejects(lambda _: True)
    line = Line(output, editors=[Editing(partial(several, total=3))])
    assert line.run(delivered(1)) == {Outcome.REJECTED: 3}
    rejects = line.rejected()
    assert [(texts(reject)[PART], texts(reject)[PARTS]) for reject in rejects] == [("0", "3"), ("1", "3"), ("2", "3")]
    assert [record.part for record in line.journal.records] == [0, 1, 2]
    accepting = OutputThatAccepts()
    line = Line(accepting, editors=[Editing(partial(several, total=3))])
    counts = line.run(*(replay(reject, number) for number, reject in enumerate(rejects, 2)))
    assert counts == {Outcome.SENT: 3, Outcome.FILTERED: 6}
    assert accepting.ids("orders") == ["part-0", "part-1", "part-2"]


def test_parts_that_a_replayed_reject_does_not_send_are_recorded_as_filtered() -> None:
    output = OutputThatAccepts()
    line = Line(output, editors=[Editing(partial(several, total=3))])
    assert line.run(delivered(2, named=stamps(STAMPS))) == {Outcome.SENT: 1, Outcome.FILTERED: 2}
    assert output.ids("orders") == ["part-1"]
    assert [(record.part, record.outcome, record.message_id, record.reason) for record in line.journal.records] == [
        (0, Outcome.FILTERED, "part-0", ONLY),
        (1, Outcome.SENT, "part-1", None),
        (2, Outcome.FILTERED, "part-2", ONLY),
    ]


def test_a_replayed_reject_that_fails_before_the_send_is_rejected_with_its_part() -> None:
    refused = OutputThatRejects(lambda _: True)
    line = Line(refused, editors=[Editing(partial(several, total=3))])
    assert line.run(delivered(2, named=stamps(STAMPS))) == {Outcome.REJECTED: 1, Outcome.FILTERED: 2}
    broken = Line(editors=[Editing(refuse), Editing(partial(several, total=3))])
    assert broken.run(delivered(2, named=stamps(STAMPS))) == {Outcome.REJECTED: 1}
    for each in (line, broken):
        (reject,) = each.rejected()
        assert {name: texts(reject)[name] for name in STAMPS} == STAMPS
        assert texts(reject)[SEQUENCE] == "2"


def test_a_replayed_reject_that_now_has_another_number_of_parts_is_rejected() -> None:
    for total in (1, 2, 4):
        output = OutputThatAccepts()
        line = Line(output, editors=[Editing(partial(several, total=total))])
        assert line.run(delivered(2, named=stamps(STAMPS))) == {Outcome.REJECTED: 1}
        assert output.accepted == {}
        (reject,) = line.rejected()
        assert texts(reject)[REASON] == "NoSuchPart"
        assert str(texts(reject)[DESCRIPTION]).startswith(
            f"repl-reject-part asks for part 1 of 3, but the editors split the message into {total}"
        )


def test_impossible_part_number_is_ignored() -> None:
    for part, parts in (("3", "3"), ("9", "3"), ("0", "1"), ("1", "+3"), ("9" * 5000, "3")):
        line = Line(editors=[Editing(partial(several, total=3))])
        assert line.run(delivered(2, named=stamps({**STAMPS, PART: part, PARTS: parts}))) == {Outcome.SENT: 3}


def test_a_task_without_editors_ignores_part_numbers() -> None:
    assert Line().run(delivered(2, named=stamps(STAMPS))) == {Outcome.SENT: 1}


def test_an_event_that_is_replayed_in_another_partition_sends_only_its_part() -> None:
    line = Line(editors=[Editing(partial(several, total=3))])
    named = stamps({**STAMPS, SOURCE: "west/orders/Partitions/3"})
    assert line.run(delivered(2, named=named)) == {Outcome.SENT: 1, Outcome.FILTERED: 2}


_NUMBERS = st.sampled_from(["", "-1", "0", "1", "2", "3", "03", "1e0", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 5000])
_FORGED = st.fixed_dictionaries(
    {},
    optional={
        TASK: st.sampled_from(["copy", "other", ""]).map(string),
        SOURCE: st.sampled_from(["west/orders", "west/orders/Partitions/1", "east/orders", ""]).map(string),
        PART: st.one_of(_NUMBERS.map(string), st.integers(0, 3).map(int_)),
        PARTS: st.one_of(_NUMBERS.map(string), st.integers(0, 3).map(int_)),
    },
)


@given(_FORGED, st.integers(1, 3))
def test_forged_part_numbers_do_not_lose_a_part(forged: dict[str, Value], total: int) -> None:
    output = OutputThatAccepts()
    line = Line(output, editors=[Editing(partial(several, total=total))])
    counts = line.run(delivered(1, named=forged))
    if counts[Outcome.REJECTED]:
        assert counts == {Outcome.REJECTED: 1}
        assert output.accepted == {}
        return
    sent = output.ids("orders")
    withheld = [
        record.message_id for record in line.journal.records if record.outcome is Outcome.FILTERED and record.reason
    ]
    assert sorted([*map(str, sent), *map(str, withheld)]) == [f"part-{number}" for number in range(total)]
    assert withheld == [] or (len(sent) == 1 and forged.keys() == {TASK, SOURCE, PART, PARTS})
