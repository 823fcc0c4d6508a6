"""Who is attached to which entity, and the end of it when the entity goes or is disabled."""

from collections.abc import Collection
from enum import Enum, auto
from typing import Protocol

from local.broker.errors import Refusal

_SUBSCRIPTIONS = "/subscriptions/"


class Use(Enum):
    """What a link does with its entity."""

    SEND = auto()
    RECEIVE = auto()
    MANAGE = auto()


class EntityLink(Protocol):
    """A link that can be ended from this side."""

    def expel(self, refusal: Refusal) -> None:
        """End, telling the peer why."""
        ...


class EntityLinks:
    """The links of a namespace by the paths of their entities, which are in lower case."""

    def __init__(self) -> None:
        self._links: dict[str, dict[EntityLink, Use]] = {}
        self._paths: dict[EntityLink, str] = {}

    def join(self, path: str, use: Use, link: EntityLink) -> None:
        """Note that *link* uses the entity at *path*."""
        self._links.setdefault(path, {})[link] = use
        self._paths[link] = path

    def leave(self, link: EntityLink) -> None:
        """Forget a link, if it is known."""
        path = self._paths.pop(link, None)
        if path is not None:
            links = self._links[path]
            del links[link]
            if not links:
                del self._links[path]

    def count(self, path: str, use: Use) -> int:
        """Return how many links use an entity, a topic's subscriptions among it, in this way."""
        at = [links for each, links in self._links.items() if each == path or each.startswith(path + _SUBSCRIPTIONS)]
        return sum(each is use for links in at for each in links.values())

    def expel(self, path: str, uses: Collection[Use], refusal: Refusal) -> None:
        """End the links that use the entity at *path* in one of these ways."""
        for link, use in list(self._links.get(path, {}).items()):
            if use in uses:
                link.expel(refusal)

    def expel_all(self, path: str, refusal: Refusal) -> None:
        """End all links of the entity at *path*, and of a topic's subscriptions."""
        for each in [each for each in self._links if each == path or each.startswith(path + _SUBSCRIPTIONS)]:
            self.expel(each, Use, refusal)
