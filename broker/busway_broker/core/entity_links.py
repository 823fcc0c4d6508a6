"""The links of each entity, which end when it is deleted or disabled, and the entities that nobody uses any more."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from busway_broker.core.entities import Queue, Subscription, Topic
from busway_broker.core.times import in_milliseconds
from busway_broker.core.usage import Use
from busway_broker.errors import Refusal

_SUBSCRIPTIONS = "/subscriptions/"


class EntityLink(Protocol):
    """A link that the broker can end."""

    is_attached: bool
    """Whether the broker has answered its attach: one that waits for a session has no answer yet."""

    def force_detach(self, refusal: Refusal) -> None:
        """End the link with a reason."""
        ...

    def end_forced(self, details: str) -> None:
        """End the link as the service does on its own account."""
        ...


class EntityLinks:
    """The links of a namespace by the paths of their entities in lower case."""

    def __init__(self) -> None:
        self._links: dict[str, dict[EntityLink, Use]] = {}
        self._paths: dict[EntityLink, str] = {}

    def join(self, path: str, use: Use, link: EntityLink) -> None:
        """Register a link of the entity at *path*."""
        self._links.setdefault(path, {})[link] = use
        self._paths[link] = path

    def leave(self, link: EntityLink) -> None:
        """Remove a link, if it is registered."""
        path = self._paths.pop(link, None)
        if path is not None:
            links = self._links[path]
            del links[link]
            if not links:
                del self._links[path]

    def count(self, path: str, use: Use) -> int:
        """Return how many links use an entity for this purpose; a topic's subscriptions are included."""
        return sum(each is use for at in self._within(path) for each in self._links[at].values())

    def are_at(self, path: str) -> bool:
        """Return whether there is an open link of the entity at *path*, a topic's subscriptions included."""
        return any(link.is_attached for at in self._within(path) for link in self._links[at])

    def _within(self, path: str) -> list[str]:
        """Return the paths of an entity and, of a topic, of its subscriptions."""
        return [each for each in self._links if each == path or each.startswith(path + _SUBSCRIPTIONS)]

    def detach(self, path: str, uses: Collection[Use], refusal: Refusal) -> None:
        """End the links of the entity at *path* that have one of these purposes."""
        for link, use in list(self._links.get(path, {}).items()):
            if use in uses:
                link.force_detach(refusal)

    def end_forced(self, path: str) -> None:
        """End the receivers and senders of an entity that was updated; its `$management` links stay."""
        for link, use in list(self._links.get(path, {}).items()):
            if use is not Use.MANAGE:
                link.end_forced(f"Inner{'MessageReceiver' if use is Use.RECEIVE else 'MessageSender'} was closed.")

    def detach_deleted(self, path: str, refusal: Refusal) -> None:
        """
        End the receivers and senders of an entity that was deleted, a topic's subscriptions included.

        Its `$management` links stay, and see what it was (issue 30028 of azure-sdk-for-net).
        """
        for each in self._within(path):
            self.detach(each, (Use.SEND, Use.RECEIVE), refusal)


type Entity = Queue | Topic | Subscription


class IdleEntities:
    """
    Calls *remove* for each entity that nobody has used for a while (AutoDeleteOnIdle); an owner of a timer.

    An entity is used while a link is attached to it, while it has scheduled messages, and when it is created or
    changed. A topic is used while one of its subscriptions is. A receiver that waits for a session does not use it.

    Sources: Microsoft Learn, "Message expiration", temporary entities; Azure/azure-service-bus issue 439 for sessions.
    """

    def __init__(
        self, entities: Callable[[], Iterable[Entity]], links: EntityLinks, remove: Callable[[Entity], None]
    ) -> None:
        self._entities = entities
        self._links = links
        self._remove = remove
        self._now = 0

    def advance(self, now: int) -> int | None:
        """Remove the entities that are due; see `Timed`."""
        self._now = now
        for entity, at in list(self._deadlines()):
            if at <= now:
                self._remove(entity)
        return self.next_deadline()

    def next_deadline(self) -> int | None:
        """Return when the next entity is due, as far as that is known."""
        return min((at for _, at in self._deadlines()), default=None)

    def _deadlines(self) -> Iterator[tuple[Entity, int]]:
        for entity in self._entities():
            if entity.config.auto_delete_on_idle is not None:
                after = in_milliseconds(entity.config.auto_delete_on_idle)
                yield entity, self._last_use(entity) + after

    def _last_use(self, entity: Entity) -> int:
        is_waiting = isinstance(entity, Queue | Topic) and entity.incoming.scheduled
        if is_waiting or self._links.are_at(entity.path.lower()):
            return self._now
        children = entity.subscriptions.values() if isinstance(entity, Topic) else ()
        used = (entity.times, *(subscription.times for subscription in children))
        return max(max(times.created_at, times.updated_at, times.accessed_at or 0) for times in used)
