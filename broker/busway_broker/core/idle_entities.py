"""
Entities that delete themselves when nobody has used them for a while (AutoDeleteOnIdle).

An entity is used while a link is attached to it, while it has scheduled messages, and when it is created or changed. A
topic is used while one of its subscriptions is.

Source: Microsoft Learn, "Message expiration", temporary entities.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Protocol

from busway_broker.core.entities import Queue, Subscription, Topic
from busway_broker.core.usage import Times

type Entity = Queue | Topic | Subscription


class Uses(Protocol):
    """The links of a namespace."""

    def are_at(self, path: str) -> bool:
        """Return whether there is a link of the entity at a path in lower case, a topic's subscriptions included."""
        ...


class IdleEntities:
    """Calls *remove* for each entity whose time is over; an owner of a timer of the namespace."""

    def __init__(self, entities: Callable[[], Iterable[Entity]], uses: Uses, remove: Callable[[Entity], None]) -> None:
        self._entities = entities
        self._uses = uses
        self._remove = remove
        self._now = 0

    def advance(self, now: int) -> None:
        """Remove the entities that are due."""
        self._now = now
        for entity, at in list(self._deadlines()):
            if at <= now:
                self._remove(entity)

    def next_deadline(self) -> int | None:
        """Return when the next entity is due, as far as that is known."""
        return min((at for _, at in self._deadlines()), default=None)

    def _deadlines(self) -> Iterator[tuple[Entity, int]]:
        for entity in self._entities():
            if entity.config.auto_delete_on_idle is not None:
                after = entity.config.auto_delete_on_idle // timedelta(milliseconds=1)
                yield entity, self._last_use(entity) + after

    def _last_use(self, entity: Entity) -> int:
        is_waiting = isinstance(entity, Queue | Topic) and entity.incoming.scheduled
        if is_waiting or self._uses.are_at(entity.path.lower()):
            return self._now
        children = entity.subscriptions.values() if isinstance(entity, Topic) else ()
        return max(map(_latest, (entity.times, *(subscription.times for subscription in children))))


def _latest(times: Times) -> int:
    return max(times.created_at, times.updated_at, times.accessed_at or 0)
