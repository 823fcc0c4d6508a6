"""Messages that an evacuation schedules at its target, with a target that refuses some or does not answer."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusConnectionError

from cli.evacuation.pairs import Pair
from cli.evacuation.schedule import ScheduleDelivery
from shared.errors import TargetUnavailable
from shared.protocols import Outgoing
from shared.resend.delivery import Attempt, PreparedMessage
from shared.resend.ledger import REFUSED, SENDING, SENT, Ledger, MemoryStore
from shared.resend.places import Destination, Place, Scene

EAST = Destination("east", "east", "orders")
KEYS = ["1/0", "2/0", "3/0", "4/0"]


class TargetThatFails:
    """Schedules what comes together, but refuses a request with one of *refused*, and is silent at one of *silent*."""

    def __init__(self, refused: Sequence[str], silent: Sequence[str]) -> None:
        self.scheduled: list[str] = []
        self._refused = refused
        self._silent = silent

    async def schedule(self, messages: Sequence[Outgoing], _: float) -> list[int]:
        names = [message.content.decode() for message in messages]
        if {*names} & {*self._refused}:
            raise MessageSizeExceededError
        if {*names} & {*self._silent}:
            raise ServiceBusConnectionError
        self.scheduled += names
        return [10 * KEYS.index(name) for name in names]


def scheduled(refused: Sequence[str] = (), silent: Sequence[str] = ()) -> tuple[Attempt, TargetThatFails, Ledger]:
    target, ledger = TargetThatFails(refused, silent), Ledger(MemoryStore(), "orders")
    place = Place("west", "west", "WEST", "orders")
    pair = Pair(place, Place("east", "east", "EAST", "orders"), EAST)
    scene = Scene(place, cast("Any", None), {})
    delivery = ScheduleDelivery(pair, scene, ledger, {}, cast("Any", target))
    ledger.marks = {str(EAST): {0: 1}}  # where the numbers begin is known
    messages = [PreparedMessage(key, EAST, Outgoing(key.encode(), None, None, None), f"mark {key}") for key in KEYS]
    return asyncio.run(delivery.send(messages)), target, ledger


@pytest.mark.parametrize("refused", [[], ["1/0"], ["2/0", "4/0"], KEYS])
def test_a_message_that_the_target_refuses_does_not_keep_the_others_from_it(refused: list[str]) -> None:
    attempt, target, ledger = scheduled(refused)
    others = [key for key in KEYS if key not in refused]
    assert (attempt.sent, [*attempt.rejected], target.scheduled) == (others, refused, others)
    assert (attempt.error, attempt.unclear) == (None, [])
    assert {key: (entry.state, entry.number) for key, entry in ledger.entries.items()} == {
        key: (REFUSED, None) if key in refused else (SENT, 10 * KEYS.index(key)) for key in KEYS
    }
    assert [entry.mark for entry in ledger.entries.values()] == [f"mark {key}" for key in KEYS]


def test_what_is_not_reached_after_a_silence_is_in_doubt_and_not_sent() -> None:
    attempt, target, ledger = scheduled(["1/0"], ["2/0", "3/0", "4/0"])
    assert (attempt.sent, [*attempt.rejected], target.scheduled) == ([], ["1/0"], [])
    assert isinstance(attempt.error, TargetUnavailable)
    assert attempt.unclear == ["2/0", "3/0", "4/0"]
    assert [ledger.state(key) for key in KEYS] == [REFUSED, SENDING, SENDING, SENDING]
