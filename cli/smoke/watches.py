"""Where a message of a smoke test shows: in queues and subscriptions by peek, in a hub by reading its new events."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from cli.hub_reader import hub_at
from cli.smoke.probes import MARK, Probe
from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.peek import Peeker, peeker
from shared.errors import TargetUnavailable
from shared.message.arrival import Origin
from shared.message.peeked import PeekedMessage
from shared.resend.letters import Letter
from shared.resend.peek import CHECK
from shared.resend.places import Place

MOST_WAITING = 20_000
# Azure puts the partition of a partitioned entity into the upper 16 bits: its numbers do not rise.
_PARTITIONED = 1 << 48
_EVENTS_AT_ONCE = 500
_EVENT_SECONDS = 0.2


class Sight(NamedTuple):
    """A message that was seen, and where."""

    where: str
    letter: Letter


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


class EntityWatch:
    """Peeks at a queue or subscription over a connection that stays open; continues where it was."""

    def __init__(self, place: Place, settings: Mapping[str, str]) -> None:
        """Watch *place*."""
        self.place = place
        self._settings = settings
        self._next = 1
        self._opened = contextlib.AsyncExitStack()
        self._peeker: Peeker | None = None

    async def start(self) -> None:
        """Pass over what the entity has already; raises ConfigError, TargetUnavailable if it cannot be peeked."""
        await self.look()

    async def look(self) -> list[Sight]:
        """Return the messages since the last look; raises as `start`, also for an entity with too many."""
        source = self._peeker or await self._open()
        found: list[Sight] = []
        highest = self._next - 1
        while messages := await _peeked(source, highest + 1):
            found += [Sight(str(self.place), Letter(message.content, self.place.origin)) for message in messages]
            if len(found) > MOST_WAITING:
                raise TargetUnavailable(f"{self.place}: more than {MOST_WAITING:,} messages wait there")
            last = max((message.sequence_number or 0 for message in messages), default=highest)
            if last <= highest:
                break
            highest = last
        self._next = highest + 1 if highest < _PARTITIONED else 1
        return found

    async def close(self) -> None:
        """Close the connection."""
        await self._opened.aclose()
        self._peeker = None

    async def _open(self) -> Peeker:
        client = await self._opened.enter_async_context(service_bus_client(self.place.setting, self._settings))
        self._peeker = await self._opened.enter_async_context(peeker(client, self.place.origin))
        return self._peeker


async def _peeked(source: Peeker, first: int) -> list[PeekedMessage]:
    try:
        return await source.peek(first)
    except TargetUnavailable as error:
        raise TargetUnavailable(f"{error}; {CHECK}") from error


class HubWatch:
    """Reads the events that come into a hub after `start`."""

    def __init__(self, site: str, setting: str, hub: str, settings: Mapping[str, str]) -> None:
        """Watch *hub* as its default consumer group."""
        self.place = Origin(site, hub)
        self._hub = hub_at(setting, settings, hub)
        self._opened: list[Any] = []

    async def start(self) -> None:
        """Open a link to the end of each partition; raises TargetUnavailable and TargetRefused."""
        for partition in await self._hub.partition_ids():
            self._opened.append(await self._hub.open(partition, "@latest", _EVENTS_AT_ONCE))

    async def look(self) -> list[Sight]:
        """Return the events since the last look."""
        where = f"{self.place.site}/{self.place.entity}"
        return [
            Sight(where, Letter(event.payload, self.place))
            for each in self._opened
            for event in await each.link.receive(_EVENTS_AT_ONCE, _EVENT_SECONDS)
        ]

    async def close(self) -> None:
        """Close the links."""
        for each in self._opened:
            await each.close()
        await self._hub.close()


class Watch(Protocol):
    """A place that is looked at for messages that come after `start`."""

    @property
    def place(self) -> Place | Origin:
        """The place."""
        ...

    async def start(self) -> None:
        """Pass over what is there already; raises BuswayError."""
        ...

    async def look(self) -> list[Sight]:
        """Return the messages since the last look; raises BuswayError."""
        ...

    async def close(self) -> None:
        """Close what is open, also without a start."""
        ...


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
