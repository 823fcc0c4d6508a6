"""Active-passive: what the passive site holds, for how long, and consumers that switch over to it and back."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from shared.clock import ManualClock
from tests.end_to_end.running_pattern import EXAMPLES, RunningPattern, lines, stamps

PATTERN = EXAMPLES / "active-passive"
LIFE_SECONDS = 120


def payments(*ids: str) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(each, message_id=each) for each in ids]


class Consumer:
    """An application that keeps the ids of what it has done, and does nothing twice."""

    def __init__(self, pattern: RunningPattern) -> None:
        self.pattern = pattern
        self.receivers = {
            site: pattern.receiver(f"{site}/payments/Subscriptions/application") for site in ("west", "east")
        }
        self.done: list[str | None] = []
        self.seen_again: list[str | None] = []

    def close(self) -> None:
        self.pattern.at_once(*(receiver.close for receiver in self.receivers.values()))

    def work(self, site: str, count: int) -> None:
        """Take *count* payments at *site*."""
        for message in self.pattern.take_from(self.receivers[site], count):
            (self.seen_again if message.message_id in self.done else self.done).append(message.message_id)


def test_consumers_switch_and_return_without_losses_or_repeated_processing(tmp_path: Path) -> None:
    with RunningPattern(PATTERN, tmp_path) as pattern:
        consumer = Consumer(pattern)
        pattern.send("west/payments", *payments("p1", "p2", "p3", "p4", "p5"))
        consumer.work("west", 3)
        pattern.wait_until_drained()

        # West is not to be reached any more: consumers switch over, then publishers.
        consumer.work("east", 5)
        assert consumer.done == ["p1", "p2", "p3", "p4", "p5"]
        assert consumer.seen_again == ["p1", "p2", "p3"]
        pattern.send("east/payments", *payments("p6", "p7"))
        consumer.work("east", 2)

        # It is back: publishers first, and consumers once what was published in east is done.
        pattern.at_once(
            partial(pattern.send, "east/payments", *payments("p8")),
            partial(pattern.send, "west/payments", *payments("p9")),
        )
        pattern.wait_until_drained()
        consumer.work("east", 2)
        assert pattern.active("east/payments/Subscriptions/application") == 0
        consumer.seen_again.clear()
        consumer.work("west", 3)
        assert sorted(map(str, consumer.done)) == [f"p{n}" for n in range(1, 10)]
        assert consumer.seen_again == ["p4", "p5", "p9"], "what was done in east is still in west"
        # Nothing that was published in east is ever in west.
        assert pattern.active("west/payments/Subscriptions/application") == 0
        consumer.close()
        assert pattern.app.stop() == 0


def test_copies_expire_two_minutes_after_they_are_made_and_originals_later(tmp_path: Path) -> None:
    clock = ManualClock(datetime.now(UTC))
    with RunningPattern(PATTERN, tmp_path, clock=clock) as pattern:
        pattern.send("west/payments", *payments("old"))
        pattern.wait_until_drained()
        pattern.broker.advance(LIFE_SECONDS - 1)
        pattern.send("west/payments", *payments("new"))
        pattern.wait_until_drained()
        with pattern.receiver("east/payments/Subscriptions/application") as receiver:
            there = receiver.peek_messages(10)
        assert list(lines(there)) == ["old", "new"]
        assert {message.time_to_live for message in there} == {timedelta(seconds=LIFE_SECONDS)}
        assert {stamps(message)["repl-path"] for message in there} == {"west"}
        pattern.broker.advance(2)
        assert list(lines(pattern.take("east/payments/Subscriptions/application", 1))) == ["new"]
        assert pattern.active("east/payments/Subscriptions/application") == 0
        assert list(lines(pattern.take("west/payments/Subscriptions/application", 2))) == ["old", "new"]
        # Those of a delayed copy start when it is made, not when the original was sent.
        with pattern.host_away():
            pattern.send("west/payments", *payments("a", "b"))
            pattern.broker.advance(10 * LIFE_SECONDS)
        pattern.wait_until_drained()
        assert list(lines(pattern.take("east/payments/Subscriptions/application", 2))) == ["a", "b"]
