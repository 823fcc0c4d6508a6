"""Driving steps: what they yield is done, what comes of it sent back."""

from collections.abc import Awaitable, Callable
from typing import Any

from busway_clients.sessions.effects import Effect, LockLost
from busway_clients.sessions.errors import JournalError
from busway_clients.sessions.visit import Steps


def drive(steps: Steps, perform: Callable[[Effect], Any]) -> Any:  # noqa: ANN401 - what the steps return
    """Do what *steps* yield until they end; what cannot be done is raised in them."""
    try:
        effect = next(steps)
        while True:
            try:
                answer = perform(effect)
            except (JournalError, LockLost) as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as ended:
        return ended.value


async def drive_async(steps: Steps, perform: Callable[[Effect], Awaitable[Any]]) -> Any:  # noqa: ANN401 - likewise
    """Do as `drive` does, with a *perform* that is awaited."""
    try:
        effect = next(steps)
        while True:
            try:
                answer = await perform(effect)
            except (JournalError, LockLost) as error:
                effect = steps.throw(error)
            else:
                effect = steps.send(answer)
    except StopIteration as ended:
        return ended.value
