"""The de-duplicating receiver over the wire: each message once, whatever fails."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage

from busway_broker.faults import Effect, Fault, Operation
from busway_clients import (
    DeadLetter,
    DeduplicatingReceiver,
    Handled,
    MemoryStore,
    Watermark,
    WrongUse,
    by_message_id,
    by_property,
)
from busway_clients.receivers.messages import origin_time
from tests.clients.receivers.consuming import Effects, consume, send_to_both
from tests.clients.site import Site, both_kinds

pytestmark = pytest.mark.long


@both_kinds
def test_one_of_two_copies_is_processed_and_both_queues_are_empty(site: Site) -> None:
    entity = site.queue()
    send_to_both(site, entity, [ServiceBusMessage(f"{number}") for number in range(10)])
    effects = Effects()
    receiver = consume(site, entity, effects)
    assert effects.seen == Counter({f"{number}": 1 for number in range(10)})
    assert sum(counts[Handled.PROCESSED] for counts in receiver.counts.values()) == 10
    assert sum(counts[Handled.DUPLICATE] for counts in receiver.counts.values()) == 10
    assert site.ids("west", entity) == site.ids("east", entity) == []


def test_failed_message_is_not_recorded_and_is_processed_later(site: Site) -> None:
    entity = site.queue()
    send_to_both(site, entity, [ServiceBusMessage("a"), ServiceBusMessage("b")])
    effects = Effects({"a": 3})
    consume(site, entity, effects)
    assert effects.done == {"a": 1, "b": 1}
    assert effects.seen["a"] == 4
    assert site.ids("west", entity) == site.ids("east", entity) == []


@both_kinds
def test_poison_message_is_dead_lettered_and_blocks_no_other(site: Site) -> None:
    entity = site.queue("twice")
    messages = [ServiceBusMessage("bad"), ServiceBusMessage("good")]
    send_to_both(site, entity, messages)
    effects = Effects({"bad": 100})
    consume(site, entity, effects)
    assert effects.done == {"good": 1}
    assert site.dead("west", entity) == site.dead("east", entity) == [messages[0].message_id]


def test_dead_letter_error_dead_letters_at_once(site: Site) -> None:
    entity = site.queue()
    send_to_both(site, entity, ServiceBusMessage("bad"))
    effects = Effects({"bad": 100}, DeadLetter("NotAnOrder", "no number in it"))
    receiver = consume(site, entity, effects)
    assert effects.seen["bad"] == 2
    assert [counts[Handled.DEAD_LETTERED] for counts in receiver.counts.values()] == [1, 1]
    [dead] = site.call(site.receivers(entity, sub_queue="deadletter")["west"].receive_messages(1, 10))
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("NotAnOrder", "no number in it")


def test_identity_by_property_and_messages_without_it(site: Site) -> None:
    entity = site.queue()
    marked = [
        ServiceBusMessage("first", application_properties={"order": 7}),
        ServiceBusMessage("second", application_properties={"order": 7}),
        ServiceBusMessage("bare"),
        ServiceBusMessage("bare"),
    ]
    site.call(site.passive(entity).send(marked))
    effects = Effects()
    consume(site, entity, effects, identity=by_property("order"))
    assert effects.done == {"first": 1, "bare": 2}
    labelled = [ServiceBusMessage(text, subject="order-7") for text in ("by label", "its copy")]
    site.call(site.passive(entity).send(labelled))
    consume(site, entity, effects, identity=lambda message: message.subject)
    assert effects.done == {"first": 1, "bare": 2, "by label": 1}
    site.call(site.passive(entity).send(ServiceBusMessage("bare")))
    consume(site, entity, effects, identity=by_property("order"), without_identity="dead-letter")
    assert effects.done["bare"] == 2
    assert len(site.dead("west", entity)) == 1


@pytest.mark.parametrize(
    ("written", "first"),
    [
        ({b"repl-enqueue-time": b"2026-01-02T03:04:05.678Z;2026-02-01T00:00:00.000Z"}, "2026-01-02T03:04:05.678+00:00"),
        ({b"repl-enqueued-time": b"2026-01-02 03:04:05Z;2026-02-01 00:00:00Z"}, "2026-01-02T03:04:05+00:00"),
        ({b"repl-enqueued-time": b"0001-01-01 00:00:00Z;2026-02-01 00:00:00Z"}, "2026-02-01T00:00:00+00:00"),
        ({b"repl-enqueue-time": b"0001-01-01 00:00:00Z"}, "2026-03-01T00:00:00+00:00"),
        ({b"repl-enqueue-time": b"yesterday"}, "2026-03-01T00:00:00+00:00"),
        ({}, "2026-03-01T00:00:00+00:00"),
    ],
)
def test_origin_time_is_the_first_valid_time(written: Any, first: str) -> None:
    message = SimpleNamespace(application_properties=written, enqueued_time_utc=datetime(2026, 3, 1, tzinfo=UTC))
    assert origin_time(cast("Any", message)) == datetime.fromisoformat(first)


@pytest.mark.parametrize(("held", "identity"), [(None, None), ("", None), (b"", None), (b"a", "a"), (7, "7")])
def test_empty_message_id_is_no_identity(held: str | bytes | int | None, identity: str | None) -> None:
    message = SimpleNamespace(message_id=held)
    assert by_message_id(cast("Any", message)) == identity


def test_messages_behind_the_watermark_are_not_processed_again(site: Site) -> None:
    entity = site.queue()
    mark = datetime.now(UTC)

    def copy(name: str, age: Any) -> ServiceBusMessage:
        return ServiceBusMessage(
            name, application_properties={"repl-enqueue-time": f"{(mark - age).isoformat()};2026-01-01T00:00:00Z"}
        )

    messages = [
        copy("old", timedelta(seconds=11)),
        copy("within the skew", timedelta(seconds=9)),
        copy("new", timedelta(seconds=-1)),
        ServiceBusMessage("local"),
    ]
    site.call(site.passive(entity).send(messages))
    effects = Effects()
    receiver = consume(site, entity, effects, watermark=Watermark(mark, timedelta(seconds=10)))
    assert effects.done == {"within the skew": 1, "new": 1, "local": 1}
    assert receiver.counts["west"][Handled.BEHIND] == 1
    assert site.ids("west", entity) == []


@both_kinds
def test_lost_lock_causes_no_second_processing(site: Site) -> None:
    entity = site.queue()
    site.call(site.passive(entity).send(ServiceBusMessage("x")))
    site.faults("west").add(
        Fault(effect=Effect.EXPIRE_LOCKS, entity=entity, operations=frozenset({Operation.SETTLE}), times=1)
    )
    effects = Effects()
    receiver = consume(site, entity, effects)
    assert effects.seen == {"x": 1}
    assert receiver.counts["west"] == {Handled.PROCESSED: 1, Handled.DUPLICATE: 1}


def test_invalid_settings_are_reported_by_the_constructor() -> None:
    with pytest.raises(WrongUse, match="2026-01-01 00:00:00 has no time zone"):
        Watermark(datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused
    with pytest.raises(WrongUse, match="skew of a watermark: got -1 day"):
        Watermark(datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=-1))
    with pytest.raises(WrongUse, match="got none"):
        DeduplicatingReceiver({}, MemoryStore())
    with pytest.raises(WrongUse, match="is empty, expected the name"):
        by_property("")
    with pytest.raises(WrongUse, match="expected 'process' or 'dead-letter'"):
        DeduplicatingReceiver({}, MemoryStore(), without_identity=cast("Any", "drop"))
