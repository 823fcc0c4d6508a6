"""The selected messages of an entity, found by peeking."""

import contextlib
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from shared.resend.delivery import Routing
from shared.resend.groups import Groups
from shared.resend.peek import peek
from shared.resend.places import Place
from shared.resend.selection import Selection


class Inventory(NamedTuple):
    """The selected messages of an entity, and what keeps others from being selected."""

    sessions: dict[str, str | None]
    """The session of each by its key, in the order of the entity."""
    groups: Groups
    destinations: Counter[str]
    unreachable: Counter[str]
    """Messages that cannot be received or read, by the reason."""
    unevaluated: int


async def inventory_of(
    place: Place,
    settings: Mapping[str, str],
    selection: Selection,
    routing: Routing | None = None,
    *,
    keys: set[str] | None = None,
    most: int | None = None,
) -> Inventory:
    """Peek at *place* and return the selected messages that can be sent, of the first *most*; no content is kept."""
    found = Inventory({}, Groups(place, datetime.now(UTC)), Counter(), Counter(), 0)
    async with contextlib.aclosing(peek(place, settings, most=most)) as letters:
        async for letter, message in letters:
            if selection.is_complete:
                break
            if (keys is not None and letter.key not in keys) or not selection.takes(letter):
                continue
            if letter.key is None:
                found.unreachable["cannot be read: its sections are not AMQP"] += 1
                continue
            if not message.is_active:
                found.unreachable["is deferred or scheduled, and is not delivered to a receiver"] += 1
                continue
            destination = None if routing is None else await routing(letter)
            if isinstance(destination, str):
                found.unreachable[destination] += 1
                continue
            if destination is not None:
                found.destinations[str(destination)] += 1
            found.sessions[letter.key] = letter.session_id
            found.groups.add(letter, message)
    return found._replace(unevaluated=selection.unevaluated)
