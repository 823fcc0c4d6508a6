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
    setting = required_setting(place.connection.setting, str(place))
    text = namespace_of(place).connection_string
    # In these settings its namespace is what this command reaches.
    settings = {**os.environ, **({} if text is None else {setting: text})}
    bus_place = places.Place(place.alias, place.alias, setting, place.path)
    try:
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(_ANSWER_SECONDS):
                receiver = await stack.enter_async_context(Receiver(bus_place, settings, session))
            return await _passage(receiver, dead_letter, show, wait)
    except TimeoutError as error:
        raise TargetUnavailable(f"{place}: no answer in {_ANSWER_SECONDS:.0f} s") from error
    except TargetRefused as error:
        raise _refusal(place, session, error) from error
    except TargetUnavailable as error:
        raise TargetUnavailable(
            str(error) if str(error).startswith(place.alias) else f"{place.alias}/{error}"
        ) from error


async def _passage(receiver: Receiver, dead_letter: str | None, show: Show, wait: float) -> int:
    """Print each message of a receiver once, and settle it; return how many were printed."""
    shown: set[str] = set()
    count, left = 0, list[LockedMessage]()
    while messages := await receiver.receive(_BATCH, wait):
        new = [message for message in messages if message.key is None or message.key not in shown]
        lines, is_shown = [message_line(message.delivery.payload) for message in new], False
        try:
            printing = asyncio.create_task(asyncio.to_thread(show, lines)) if new else None
            # Keep their locks as long as nobody reads what is printed.
            while printing is not None and not (await asyncio.wait([printing], timeout=_RENEWAL_SECONDS))[0]:
                await receiver.renew(new)
            if printing is not None:
                await printing
            is_shown = True
        finally:
            if not is_shown:
                await asyncio.shield(receiver.give_back(messages))
        count += len(new)
        shown.update(message.key for message in new if message.key is not None)
        if dead_letter is None:
            left = await receiver.complete(messages)
        else:
            await receiver.dead_letter(messages, dead_letter, None)
        wait = _QUIET_SECONDS
    if left:
        text = f"{len(left)} of the messages could not be settled, and will be delivered again"
        raise TargetUnavailable(f"{receiver.place}: {text}")
    return count


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
