"""What the drill counts."""

from typing import Any

from cli.failover.drill.observations import Delivery, Observations, Tally, tally


def observed(accepted: Any, deliveries: Any) -> Any:
    seen = Observations()
    for number in accepted:
        seen.accepted[number] = ("west", float(number))
    for second, (number, session, site) in enumerate(deliveries):
        seen.note(Delivery(number, session, site, float(second)))
    return seen


def test_a_complete_and_ordered_delivery_has_no_findings() -> None:
    seen = observed(range(4), [(0, "a", "west"), (1, "b", "west"), (2, "a", "east"), (3, "b", "east")])
    assert tally(seen) == Tally(4, 4, [], {}, 0)
    assert seen.is_complete


def test_losses_duplicates_and_order_breaks_are_distinguished() -> None:
    deliveries = [
        (0, "a", "west"),
        (4, "a", "east"),
        (0, "a", "east"),  # a copy of what had been processed: no break of order
        (2, "a", "west"),  # late
        (4, "a", "west"),
        (1, "b", "west"),
    ]
    seen = observed(range(6), deliveries)
    assert tally(seen) == Tally(6, 4, [3, 5], {"east": 1, "west": 1}, 1)
    assert not seen.is_complete


def test_a_processed_message_without_an_answer_to_its_sender_is_not_lost() -> None:
    assert tally(observed([0], [(0, "a", "west"), (1, "b", "west")])) == Tally(1, 2, [], {}, 0)


def test_a_switch_ends_when_every_consumer_received_a_message() -> None:
    seen = observed([0, 1], [(0, "a", "east"), (1, "b", "west"), (2, "b", "east")])
    assert seen.first_delivered("east", ["a", "b"], 0) == 2
    assert seen.first_delivered("east", ["a", "b"], 1) is None
    assert seen.first_accepted("west", 0.5) == 1
    assert seen.first_accepted("east", 0) is None
