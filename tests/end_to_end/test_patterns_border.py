"""Spillover, split, validation: what decides where a message goes, through Microsoft's SDK."""

import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceiver

from tests.end_to_end.running_pattern import EXAMPLES, RunningPattern, stamps

KEYS = ("a", "b", "c")
EACH = 8
QUEUES = ("jobs", "jobs-auxiliary", "jobs-rejected")


def give_up(receiver: ServiceBusReceiver, count: int, reason: str) -> None:
    """Dead-letter *count* messages."""
    given_up = 0
    while given_up < count:
        messages = receiver.receive_messages(count - given_up, max_wait_time=20)
        assert messages, f"{given_up} of {count} came"
        for message in messages:
            receiver.dead_letter_message(message, reason=reason, error_description=f"{reason} at {message.message_id}")
        given_up += len(messages)


def abandon(receiver: ServiceBusReceiver, deliveries: int) -> None:
    """Take one message and give it back until the queue dead-letters it."""
    for _ in range(deliveries):
        (message,) = receiver.receive_messages(1, max_wait_time=20)
        receiver.abandon_message(message)


def test_spillover_tries_each_site_once_and_then_uses_the_auxiliary_queue(tmp_path: Path) -> None:
    with RunningPattern(EXAMPLES / "spillover", tmp_path, changed=lambda namespace: namespace) as pattern:
        ids = [f"job-{n}" for n in range(EACH)]
        life = timedelta(minutes=5)
        pattern.send("west/jobs", *(ServiceBusMessage("work", message_id=each, time_to_live=life) for each in ids))
        with pattern.receiver("west/jobs") as receiver:
            give_up(receiver, EACH, "DatabaseAway")
        # The other site's consumers do some and give the rest up too.
        with pattern.receiver("east/jobs") as receiver:
            done = pattern.take_from(receiver, EACH // 2)
            give_up(receiver, EACH - EACH // 2, "Poison")
        for message in done:
            stamped = stamps(message)
            assert (stamped["repl-dlq-reason"], stamped["repl-dlq-source"]) == ("DatabaseAway", "jobs")
            assert stamped["repl-dlq-description"] == f"DatabaseAway at {message.message_id}"
            assert b"DeadLetterReason" not in (message.application_properties or {})
            assert message.time_to_live == life, "the time to live starts again at the other site"
            assert message.delivery_count == 0
        auxiliary = pattern.take("east/jobs-auxiliary", EACH - EACH // 2)
        for message in auxiliary:
            stamped = stamps(message)
            assert (stamped["repl-dlq-reason"], stamped["repl-dlq-source"]) == ("DatabaseAway;Poison", "jobs;jobs")
            assert stamped["repl-path"] == "west;east"
        assert sorted(str(message.message_id) for message in (*done, *auxiliary)) == sorted(ids)

        def left() -> int:
            counts = [pattern.broker.counts(site)[queue] for site in ("west", "east") for queue in QUEUES]
            return sum(count.active + count.dead_lettered for count in counts)

        pattern.app.wait_for(lambda: left() == 0)  # nothing bounces
        assert pattern.journal() == []

        # What the broker itself dead-letters spills over too: after three deliveries, or a life of a second, which
        # starts again in west.
        pattern.send("east/jobs", ServiceBusMessage("poison", message_id="poison"))
        with pattern.receiver("east/jobs") as receiver:
            abandon(receiver, 3)
        (spilled,) = pattern.take("west/jobs", 1)
        assert stamps(spilled)["repl-dlq-reason"] == "MaxDeliveryCountExceeded"
        pattern.send("east/jobs", ServiceBusMessage("late", message_id="late", time_to_live=timedelta(seconds=1)))
        with pattern.receiver("west/jobs") as receiver:
            (spilled,) = pattern.take_from(receiver, 1)
        assert (spilled.message_id, stamps(spilled)["repl-dlq-reason"]) == ("late", "TTLExpiredException")
        assert pattern.app.stop() == 0


def test_split_sends_each_message_to_one_target_in_session_order(tmp_path: Path) -> None:
    kinds: list[dict[Any, Any]] = [
        {"priority": 9},
        {"country": "FR"},
        {"country": "US"},
        {"priority": 9, "country": "DE"},
        {},
    ]
    places = ["east/orders-express", "east/orders-europe", "west/orders-others"]
    taken_by = [0, 1, 2, 0, 2]
    with RunningPattern(EXAMPLES / "split", tmp_path) as pattern:
        orders = [
            ServiceBusMessage(f"{n}", message_id=f"{key}-{n}", session_id=key, application_properties=kinds[n % 5])
            for n in range(EACH * 5)
            for key in KEYS
        ]
        test = ServiceBusMessage("test", session_id="a", application_properties={"test": True})
        pattern.send("west/orders", *orders, test)
        expected = {
            place: [str(n) for n in range(EACH * 5) if taken_by[n % 5] == index] for index, place in enumerate(places)
        }
        reads = [(place, key) for place in places for key in KEYS]
        taking = [partial(pattern.take, place, len(expected[place]), session_id=key) for place, key in reads]
        for (place, _), messages in zip(reads, pattern.at_once(*taking), strict=True):
            assert [str(message) for message in messages] == expected[place]
            express = place == "east/orders-express"
            # Without a life of its own, a message has the queue's.
            assert {message.time_to_live for message in messages} == {timedelta(minutes=2) if express else None}
            assert {(message.application_properties or {}).get(b"lane") for message in messages} == {
                b"express" if express else None
            }
        pattern.wait_until_drained()
        assert {place: pattern.active(place) for place in places} == dict.fromkeys(places, 0)
        assert pattern.active("west/orders-rejected") == 0
        assert pattern.app.stop() == 0


def test_fan_out_sends_each_message_to_all_targets_of_its_route_in_session_order(tmp_path: Path) -> None:
    with RunningPattern(EXAMPLES / "fan-out", tmp_path) as pattern:
        amounts = [2000 if number % 3 == 0 else 5 for number in range(EACH)]
        orders = (
            ServiceBusMessage(f"{number}", session_id=key, application_properties={"amount": amount})
            for number, amount in enumerate(amounts)
            for key in KEYS
        )
        pattern.send("west/orders", *orders)
        large = [str(number) for number, amount in enumerate(amounts) if amount >= 1000]
        all_orders = [str(number) for number in range(EACH)]
        expected = {"east/orders": all_orders, "north/orders": all_orders, "west/audit": large}
        reads = [(place, key) for place in expected for key in KEYS]
        taking = [partial(pattern.take, place, len(expected[place]), session_id=key) for place, key in reads]
        for (place, _), messages in zip(reads, pattern.at_once(*taking), strict=True):
            assert [str(message) for message in messages] == expected[place]
        pattern.wait_until_drained()
        assert pattern.active("west/orders-rejected") == 0
        assert pattern.app.stop() == 0


def test_validation_accepts_orders_and_rejects_the_rest_with_a_reason(tmp_path: Path) -> None:
    line = {"article": "screw", "quantity": 5}
    with RunningPattern(EXAMPLES / "validation", tmp_path) as pattern:
        named: dict[str | bytes, Any] = {"partner": "p", "trusted": True}
        good = [json.dumps({"id": f"{n}", "lines": [line]}) for n in range(EACH)]
        bad = {
            "wrong": json.dumps({"id": "x", "lines": [{**line, "quantity": "s3cr3t"}]}),
            "broken": '{"id": "s3cr3t',
            "large": json.dumps({"id": "x", "lines": [line], "note": "s3cr3t" * 20_000}),
        }
        messages = [
            *(
                ServiceBusMessage(body, message_id=f"good-{n}", application_properties=named)
                for n, body in enumerate(good)
            ),
            *(ServiceBusMessage(body, message_id=name, application_properties=named) for name, body in bad.items()),
            ServiceBusMessage(good[0], message_id="nobody's"),
        ]
        pattern.send("partners/orders", *messages)
        inside = pattern.take("inside/orders", EACH)
        assert [str(message) for message in inside] == good
        assert {b"trusted" in (message.application_properties or {}) for message in inside} == {False}
        rejected = {message.message_id: message for message in pattern.take("partners/orders-rejected", len(bad))}
        assert {str(message) for message in rejected.values()} == set(bad.values()), "as they came"
        stamped = {name: stamps(message) for name, message in rejected.items()}
        assert {
            name: (each["repl-reject-reason"], each["repl-reject-description"]) for name, each in stamped.items()
        } == {
            "wrong": ("SchemaViolated", 'validate: $.lines[0].quantity: got a string, expected type "integer"'),
            "broken": ("NotJson", "validate: body is not JSON, line 1 column 8: unterminated string starting at"),
            "large": ("BodyTooLarge", f"validate: body has {len(bad['large'])} bytes, expected at most 65536"),
        }
        pattern.wait_until_drained()
        assert pattern.active("inside/orders") == 0
        journal = {line["message_id"]: (line["outcome"], line["reason"]) for line in pattern.journal()}
        assert journal["nobody's"] == ("filtered", "validate: PropertyMissing: has no property partner")
        assert {name: journal[name][0] for name in bad} == dict.fromkeys(bad, "rejected")
        assert "s3cr3t" not in pattern.app.log()
        assert pattern.app.stop() == 0
