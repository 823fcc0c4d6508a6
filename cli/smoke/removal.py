"""Removes the messages of a smoke test that nobody else has taken."""

import contextlib
from collections.abc import Mapping

from cli.smoke.watches import is_of_run
from shared.errors import BuswayError
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.places import Place
from shared.resend.receiver import Receiver

_SECONDS = 1.0
_MOST_LOOKED_AT = 5_000


async def remove(place: Place, run: str, settings: Mapping[str, str]) -> str | None:
    """
    Remove the messages of *run* from an entity; return what is left there and why, None if nothing is.

    A message with a session is received from its session, which holds nothing else. Without sessions a receiver gets
    whatever is first: so nothing is received unless all messages of the entity are of this run.
    """
    try:
        ours, others = await _contents(place, run, settings)
        for session in dict.fromkeys(letter.session_id for letter in ours if letter.session_id is not None):
            with contextlib.suppress(BuswayError):  # an entity without sessions refuses them
                await _take(place, run, settings, session)
        if ours:
            ours, others = await _contents(place, run, settings)
        if ours and not others:
            await _take(place, run, settings, None)
            ours, others = await _contents(place, run, settings)
    except BuswayError as error:
        return f"{place}: messages of this test may be left there: {error}"
    if not ours:
        return None
    why = "other messages wait there too" if others else "they cannot be received"
    return f"{place}: {len(ours)} of this test {'is' if len(ours) == 1 else 'are'} left there until they expire: {why}"


async def _contents(place: Place, run: str, settings: Mapping[str, str]) -> tuple[list[Letter], int]:
    """Return the messages of *run*, and the number of others."""
    ours: list[Letter] = []
    others = 0
    async with contextlib.aclosing(peek(place, settings)) as letters:
        async for letter, _ in letters:
            if is_of_run(letter, run):
                ours.append(letter)
            else:
                others += 1
            if others > _MOST_LOOKED_AT:
                break
    return ours, others


async def _take(place: Place, run: str, settings: Mapping[str, str], session: str | None) -> None:
    async with Receiver(place, settings, session) as receiver:
        while held := await receiver.receive(10, _SECONDS):
            wanted = [message for message in held if message.letter is not None and is_of_run(message.letter, run)]
            await receiver.complete(wanted)
            others = [message for message in held if message not in wanted]
            if others:
                await receiver.give_back(others)
                return
