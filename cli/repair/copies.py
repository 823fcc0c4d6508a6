"""Entities that may have a copy of a missing message: they are peeked, never received from."""

import contextlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cli.repair.manifest import Missing
from local.host.event_hubs_connection import EventHub
from shared.amqp.values import Malformed
from shared.azure.connections import NAMESPACE_SUFFIX, service_bus_client
from shared.azure.peek import peek_all
from shared.azure.receivers.connection import Connection
from shared.config.files import Configuration
from shared.config.journal_assembly import actions_of
from shared.config.models import DEFAULT_CONSUMER_GROUP, TaskFile
from shared.errors import TargetUnavailable
from shared.journal.imprints import Imprinter
from shared.message.arrival import Origin
from shared.message.message import Message

_DEAD_LETTERS = "/$DeadLetterQueue"
_MAX_MESSAGES = 200_000
_EVENTS_PER_READ = 500
_QUIET_SECONDS = 5.0
_CLOCK = timedelta(seconds=1)


class Copy(NamedTuple):
    """An encoded message, and the entity that it is in."""

    content: bytes
    place: Origin


class Contents:
    """The messages of an entity by sequence number and by id."""

    def __init__(self, place: Origin, contents: Sequence[bytes], task: TaskFile) -> None:
        """Compute the digests of *contents* as the journal of *task* does."""
        imprinter = Imprinter(actions_of(task))
        self._by_number: dict[int, bytes] = {}
        self._by_id: dict[str | None, list[tuple[bytes, str, str | None]]] = {}
        self.place = place
        for content in contents:
            try:
                message = Message.received(content, place)
                imprint = imprinter.arriving(message)
            except Malformed:
                continue  # the journal has no digests of it either
            if message.arrival.sequence_number is not None:
                self._by_number[message.arrival.sequence_number] = content
            digests = (
                imprint.body_digest.hex(),
                None if imprint.property_digest is None else imprint.property_digest.hex(),
            )
            self._by_id.setdefault(imprint.message_id, []).append((content, *digests))

    def numbered(self, missing: Missing) -> Copy | None:
        """Return the message itself, by its sequence number."""
        content = None if missing.sequence_number is None else self._by_number.get(missing.sequence_number)
        if content is None:
            return None
        enqueued = Message.received(content, self.place).arrival.enqueued_time
        # The numbers of an entity start again when it is deleted and created.
        return Copy(content, self.place) if enqueued == missing.enqueued_time else None

    def alike(self, missing: Missing) -> Copy | None:
        """Return a copy with another sequence number, the same id and the same content."""
        for content, body, properties in self._by_id.get(missing.message_id, []):
            if body == missing.body_digest and properties == missing.property_digest:
                return Copy(content, self.place)
        return None


async def contents_of(
    configuration: Configuration, alias: str, entity: str, settings: Mapping[str, str]
) -> tuple[Origin, list[bytes]]:
    """
    Return all messages of a queue, subscription or dead-letter queue, encoded.

    Raises: TargetUnavailable if it cannot be read, or has more messages than a repair reads.
    """
    place = Origin(configuration.site(alias), entity)
    found: list[bytes] = []
    async with service_bus_client(configuration.connections[alias].key, settings) as client:
        async for contents in peek_all(client, place):
            found += contents
            if len(found) > _MAX_MESSAGES:
                text = f"has more than {_MAX_MESSAGES} messages, too many for a repair to read"
                raise TargetUnavailable(f"{place.site}/{entity}: {text}")
    return place, found


def dead_letters_of(task: TaskFile) -> str | None:
    """Return the dead-letter queue of a task's source, or None for a hub or a dead-letter queue."""
    source = task.source
    return None if source.hub is not None or source.dead_letter else source.entity + _DEAD_LETTERS


async def event(configuration: Configuration, task: TaskFile, missing: Missing) -> Copy | None:
    """Return an event that its hub still has, or None; raises TargetUnavailable."""
    if missing.partition is None or missing.enqueued_time is None or task.source.hub is None:
        return None
    setting = configuration.connections[task.source.connection].key
    connection = Connection(setting, os.environ.get(setting), os.environ.get(setting + NAMESPACE_SUFFIX))
    hub = EventHub(connection, task.source.hub, task.source.consumer_group or DEFAULT_CONSUMER_GROUP)
    place = Origin(configuration.site(task.source.connection), task.source.hub, str(missing.partition))
    since = datetime.fromtimestamp(missing.enqueued_time / 1000, UTC) - _CLOCK
    async with contextlib.aclosing(_events(hub, place, since)) as events:
        async for content in events:
            arrival = Message.received(content, place).arrival
            if arrival.sequence_number is None or missing.sequence_number is None:
                return None
            if arrival.sequence_number == missing.sequence_number:
                return Copy(content, place) if arrival.enqueued_time == missing.enqueued_time else None
            if arrival.sequence_number > missing.sequence_number:
                return None
    return None


async def _events(hub: EventHub, place: Origin, since: datetime) -> AsyncGenerator[bytes]:
    opened: Any = await hub.open(str(place.partition), since, 0)
    try:
        while events := await opened.link.receive(_EVENTS_PER_READ, _QUIET_SECONDS):
            for each in events:
                yield each.payload
    finally:
        await opened.close()
        await hub.close()
