"""A tap: which message of the source a copy is, and what is nobody's copy."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from shared.amqp.values import long, string
from shared.errors import TargetUnavailable
from shared.journal.record import Role
from shared.journal.sink import Stream
from shared.journal.tap import Tap
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import stamp
from shared.message.rule_properties import RuleProperties
from shared.rules import Action, Rule, TrueFilter, parse_action
from tests.fakes import clock_at_delivery, sleep_by
from tests.memory_sink import MemorySink
from tests.messages import ENQUEUED, delivered

WEST = Origin("west", "orders")


def tap(
    sink: "MemorySink | SinkThatFails",
    role: Role = Role.TARGET,
    *,
    watched: Origin = WEST,
    is_hub: bool = False,
    has_same_numbers: bool = False,
    is_peek: bool = False,
    pauses: list[Any] | None = None,
    actions: Iterable[Action] = (),
) -> Tap:
    clock = clock_at_delivery()
    return Tap(
        "watch",
        "copy",
        role,
        watched=watched,
        is_hub_watched=is_hub,
        place=Origin("east", "orders/Subscriptions/journal") if role is Role.TARGET else WEST,
        target="east/orders",
        is_hub=is_hub,
        has_same_numbers=has_same_numbers,
        is_peek=is_peek,
        sink=sink,
        actions=actions,
        clock=clock,
        sleep=sleep_by(clock, pauses),
    )


def seen(content: bytes, role: Role = Role.TARGET, partition: str | None = None, **options: Any) -> dict[str, Any]:
    sink = MemorySink()
    asyncio.run(tap(sink, role, **options).see([content], partition))
    (record,) = sink.records("copy", role)
    return record


def copied(number: int, *origins: Origin) -> bytes:
    """Return the copy of a message that has gone over *origins*, as it is delivered where it has arrived."""
    content = delivered(number)
    for hop, origin in enumerate(origins):
        message = Message.received(content, origin)
        stamp(message)
        named = dict(message.application_properties())
        content = delivered(number + 100 * (hop + 1), named=named, enqueued=ENQUEUED + 1000 * (hop + 1))
    return content


def test_a_copy_is_the_message_that_the_last_hop_names() -> None:
    record = seen(copied(7, Origin("north", "orders"), WEST))
    assert (record["src_seq"], record["enqueued_time"]) == (107, (ENQUEUED + 1000) * 1000)
    assert (record["tgt_seq"], record["tgt_enqueued_time"]) == (207, (ENQUEUED + 2000) * 1000)
    assert record["hops"] == ["north", "west"]
    assert (record["src_site"], record["src_entity"], record["src_part"]) == ("west", "orders", 0)
    assert (record["outcome"], record["observer"], record["tap"]) == ("seen", "tap", "watch")


@pytest.mark.parametrize(
    "content",
    [
        delivered(7),
        copied(7, Origin("north", "orders")),
        delivered(7, named={"repl-path": string("west"), "repl-sequence": string("no number")}),
        delivered(7, named={"repl-path": string("west"), "repl-sequence": string("9" * 25)}),
        delivered(7, named={"repl-path": string("west"), "repl-sequence": string("9" * 5000)}),
        delivered(7, named={"repl-path": long(5)}),
        delivered(
            7, named={"repl-path": string("west"), "repl-sequence": string("4"), "repl-enqueue-time": string("x")}
        ),
    ],
)
def test_foreign_message_has_no_source_number(content: bytes) -> None:
    record = seen(content)
    assert "src_seq" not in record
    assert "enqueued_time" not in record
    assert record["tgt_seq"] in (7, 107)


def test_the_partition_of_a_copy_from_a_hub_is_not_known_and_that_of_an_original_is() -> None:
    copy = seen(copied(7, WEST), is_hub=True, partition="1")
    assert "src_part" not in copy
    assert copy["tgt_part"] == 1
    original = seen(delivered(7), Role.SOURCE, is_hub=True, has_same_numbers=True, partition="3")
    assert (original["src_part"], original["src_seq"], original["tgt_part"]) == (3, 7, 3)
    assert original["hops"] == ["west"]


def test_tap_with_its_own_numbers_does_not_report_them_as_the_tasks() -> None:
    record = seen(delivered(7), Role.SOURCE)
    assert "src_seq" not in record
    assert (record["tgt_seq"], record["enqueued_time"], record["message_id"]) == (7, ENQUEUED * 1000, "m-7")


def test_unreadable_message_is_recorded() -> None:
    record = seen(b"\x00nonsense")
    assert (record["body_size"], record["outcome"]) == (9, "seen")
    assert "tgt_seq" not in record


class SinkThatFails(MemorySink):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def append(self, stream: Stream, member: bytes) -> None:
        if self.times:
            self.times -= 1
            raise TargetUnavailable("journal: away")
        await super().append(stream, member)


def test_short_journal_outage_uses_up_no_delivery() -> None:
    pauses: list[float] = []
    sink = SinkThatFails(3)
    asyncio.run(tap(sink, pauses=pauses).see([delivered(1)]))
    assert len(sink.records("copy", Role.TARGET)) == 1
    assert pauses == [0.2, 0.5, 1.0]
    with pytest.raises(TargetUnavailable):
        asyncio.run(tap(SinkThatFails(99)).see([delivered(1)]))


@pytest.mark.parametrize("role", list(Role))
def test_peeking_tap_is_marked(role: Role) -> None:
    assert seen(copied(7, WEST), role, is_peek=True)["peek"] is True
    assert "peek" not in seen(copied(7, WEST), role)


@pytest.mark.parametrize("role", [Role.SOURCE, Role.TARGET])
def test_copies_of_subscriptions_with_different_rules_have_the_same_content(role: Role) -> None:
    rules = [Rule(name, TrueFilter(), parse_action("SET replication = 1")) for name in ("west", "tap")]

    def content(*selected_by: Rule) -> str:
        copy = Message.received(delivered(4), WEST)
        for rule in selected_by:
            rule.apply(RuleProperties(copy))
        record = seen(copy.encode(), role, actions=[rule.action for rule in rules])
        return str(record["property_digest"])

    assert {content(), content(rules[0]), content(rules[1]), content(*rules)} == {content()}
