"""
What `busway receive` does with a queue or subscription: print messages with every type, then complete them.

What could not be printed is given back without an attempt, and what was printed is not printed again when it comes
back because its lock was lost.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence

from cli.message_lines import message_line
from cli.places import Place, namespace_of, required_setting
from shared.amqp.errors import NOT_ALLOWED
from shared.ends.look_error import FORWARDS
from shared.errors import ConfigError, Problem, TargetRefused, TargetUnavailable
from shared.resend import places
from shared.resend.receiver import Receiver
from shared.resend.source import LockedMessage

type Show = Callable[[Sequence[str]], None]
"""Prints lines, and returns once they are written."""

_BATCH = 100
_ANSWER_SECONDS = 10.0
# After the first message: stop when no other has arrived for this long.
_QUIET_SECONDS = 1.0
_RENEWAL_SECONDS = 0.5
# In the text of Azure's answer and of the local broker's; the condition is one of many meanings.
_NEEDS_SESSION = "requires sessions"
_NOT_FOUND = "amqp:not-found"


async def receive(place: Place, session: str | None, wait: float, dead_letter: str | None, show: Show) -> int:
    """
    Print all messages of *place* and complete them, or dead-letter them for a reason; return how many were printed.

    Raises: ConfigError if the entity has sessions and *session* is None, TargetUnavailable and TargetRefused.
    """
    bus_place, settings = _bus_place(place)
    try:
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(_ANSWER_SECONDS):
                receiver = await stack.enter_async_context(Receiver(bus_place, settings, session))
            return await _Passage(receiver, dead_letter, show).run(wait)
    except TimeoutError as error:
        raise TargetUnavailable(f"{place}: no answer in {_ANSWER_SECONDS:.0f} s") from error
    except TargetRefused as error:
        raise _refusal(place, session, error) from error
    except TargetUnavailable as error:
        raise TargetUnavailable(
            str(error) if str(error).startswith(place.alias) else f"{place.alias}/{error}"
        ) from error


class _Passage:
    """All messages of one receiver, each of which is printed once."""

    def __init__(self, receiver: Receiver, dead_letter: str | None, show: Show) -> None:
        self._receiver = receiver
        self._dead_letter = dead_letter
        self._show = show
        self._shown: set[str] = set()
        self._count = 0

    async def run(self, wait: float) -> int:
        left: list[LockedMessage] = []
        while messages := await self._receiver.receive(_BATCH, wait):
            is_shown = False
            try:
                if new := [message for message in messages if message.key is None or message.key not in self._shown]:
                    await self._print(new)
                is_shown = True
            finally:
                if not is_shown:
                    await asyncio.shield(self._receiver.give_back(messages))
            left = await self._settle(messages)
            wait = _QUIET_SECONDS
        if left:
            text = f"{len(left)} of the messages could not be settled, and will be delivered again"
            raise TargetUnavailable(f"{self._receiver.place}: {text}")
        return self._count

    async def _print(self, messages: Sequence[LockedMessage]) -> None:
        """Print messages, and keep their locks as long as nobody reads what is printed."""
        lines = [message_line(message.delivery.payload) for message in messages]
        printing = asyncio.create_task(asyncio.to_thread(self._show, lines))
        while not (await asyncio.wait([printing], timeout=_RENEWAL_SECONDS))[0]:
            await self._receiver.renew(messages)
        await printing
        self._count += len(messages)
        self._shown.update(message.key for message in messages if message.key is not None)

    async def _settle(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        if self._dead_letter is None:
            return await self._receiver.complete(messages)
        await self._receiver.dead_letter(messages, self._dead_letter, None)
        return []


def _refusal(place: Place, session: str | None, error: TargetRefused) -> ConfigError | TargetRefused:
    """Return why the service gives no messages of *place*, and what to do."""
    text = str(getattr(error.__cause__, "description", ""))
    if FORWARDS in text:
        return TargetRefused(f"{place}: it forwards its messages, so that nobody can receive from it")
    if session is None and _NEEDS_SESSION in text:
        return ConfigError([Problem(str(place), "has sessions", "name one: --session ID")])
    if session is not None and NOT_ALLOWED in str(error):
        return ConfigError([Problem(str(place), "has no sessions", "leave out --session")])
    if _NOT_FOUND in str(error):
        return TargetRefused(f"{place}: it does not exist")
    return TargetRefused(f"{place.alias}/{error}")


def _bus_place(place: Place) -> tuple[places.Place, dict[str, str]]:
    """Return *place* for the receiver, with settings in which its namespace is what this command reaches."""
    setting = required_setting(place.connection.setting, str(place))
    text = namespace_of(place).connection_string
    own = {} if text is None else {setting: text}
    return places.Place(place.alias, place.alias, setting, place.path), {**os.environ, **own}
