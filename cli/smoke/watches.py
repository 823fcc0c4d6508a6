"""
Where a message of a smoke test shows: in queues and subscriptions by peek, in a hub by reading its new events.

What nobody else has taken is removed from queues and subscriptions afterwards.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from cli.hub_reader import hub_at
from cli.smoke.probes import MARK, Probe
from shared.ends.service_bus.peek import Peeker
from shared.errors import BuswayError, TargetUnavailable
from shared.message.arrival import Origin
from shared.resend.letters import Letter
from shared.resend.peek import opened_peeker, peek, peek_on
from shared.resend.places import Place, place_at
from shared.resend.receiver import Receiver
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

MOST_WAITING = 20_000
_EVENTS_AT_ONCE = 500
_EVENT_SECONDS = 0.2


def is_of(letter: Letter, probe: Probe, run: str) -> bool:
    """Return whether a message is *probe*, or a part of it: by its id, or by its session if an editor changes ids."""
    if letter.message_id is not None and letter.message_id.startswith(probe.message_id):
        rest = letter.message_id.removeprefix(probe.message_id)
        return not rest[:1].isdigit()
    return is_of_run(letter, run) and letter.session_id is not None and letter.session_id == probe.session_id


def is_of_run(letter: Letter, run: str) -> bool:
    """Return whether a message is of the smoke test *run*."""
    if letter.message is None:
        return False
    mark = letter.message.application_property(MARK)
    if mark is not None:
        return mark.payload == run
    return letter.message_id is not None and letter.message_id.startswith(f"{MARK}-{run}-")


def places_on_the_way(task: TaskFile, configuration: Configuration) -> list[Place]:
    """Return where a message of *task* may be before it is at its target: the source, its dead letters, the rejects."""
    found = []
    if task.source.hub is None and configuration.connections[task.source.connection].is_namespace:
        source = place_at(task.source.connection, task.source.entity, configuration)
        found += [source, source.dead_letters()]
    rejects = task.rejects
    if rejects is not None and rejects.queue is not None and configuration.connections[rejects.connection].setting:
        found.append(place_at(rejects.connection, rejects.queue, configuration))
    return found


class Watch(ABC):
    """A place that is looked at for messages that come after `start`; raises BuswayError."""

    place: Place | Origin

    async def start(self) -> None:
        """Pass over what is there already."""
        await self.look()

    @abstractmethod
    async def look(self) -> list[Letter]:
        """Return the messages since the last look."""

    @abstractmethod
    async def close(self) -> None:
        """Close what is open, also without a start."""


class EntityWatch(Watch):
    """Peeks at a queue or subscription over a connection that stays open; continues where it was."""

    place: Place

    def __init__(self, place: Place, settings: Mapping[str, str]) -> None:
        self.place = place
        self._settings = settings
        self._seen: dict[int, int] = {}
        self._opened = contextlib.AsyncExitStack()
        self._peeker: Peeker | None = None

    async def look(self) -> list[Letter]:
        """Return the messages since the last look; raises TargetUnavailable also for an entity with too many."""
        if self._peeker is None:
            self._peeker = await self._opened.enter_async_context(opened_peeker(self.place, self._settings))
        found: list[Letter] = []
        async for letter in peek_on(self._peeker, self.place, self._seen):
            found.append(letter)
            if len(found) > MOST_WAITING:
                raise TargetUnavailable(f"{self.place}: more than {MOST_WAITING:,} messages wait there")
        return found

    async def close(self) -> None:
        """Close the connection."""
        await self._opened.aclose()
        self._peeker = None


class HubWatch(Watch):
    """Reads the events that come into a hub after `start`."""

    place: Origin

    def __init__(self, site: str, setting: str, hub: str, settings: Mapping[str, str]) -> None:
        """Watch *hub* as its default consumer group."""
        self.place = Origin(site, hub)
        self._hub = hub_at(setting, settings, hub)
        self._opened: list[Any] = []

    async def start(self) -> None:
        """Open a link to the end of each partition; raises TargetUnavailable and TargetRefused."""
        for partition in await self._hub.partition_ids():
            self._opened.append(await self._hub.open(partition, "@latest", _EVENTS_AT_ONCE))

    async def look(self) -> list[Letter]:
        """Return the events since the last look."""
        return [
            Letter(event.payload, self.place)
            for partition in self._opened
            for event in await partition.link.receive(_EVENTS_AT_ONCE, _EVENT_SECONDS)
        ]

    async def close(self) -> None:
        """Close the links."""
        for partition in self._opened:
            await partition.close()
        await self._hub.close()


@contextlib.asynccontextmanager
async def started(watches: Sequence[Watch]) -> AsyncIterator[None]:
    """Start *watches*, and close them at the end."""
    try:
        for watch in watches:
            await watch.start()
        yield
    finally:
        for watch in watches:
            await watch.close()


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
