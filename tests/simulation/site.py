"""A site: the broker's real entities of one namespace, and a clock of its own."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from busway_broker.config import EntityStatus, NamespaceConfig
from busway_broker.core.entities import Queue, Topic
from busway_broker.core.namespace import Namespace
from busway_broker.core.session_store import SessionStore
from shared.clock import SystemClock
from tests.simulation.event_loop import SeededLoop

BEGIN = datetime(2026, 1, 5, 8, tzinfo=UTC)
# A deadline in whole milliseconds may lie behind the same time in seconds by a rounding error.
_ROUNDING = 1e-6


class SkewedClock(SystemClock):
    """The virtual time, some seconds ahead or behind."""

    def __init__(self, loop: SeededLoop, skew: float = 0.0) -> None:
        """Read the time of *loop*."""
        self._loop = loop
        self._skew = timedelta(seconds=skew)
        self.begin = (BEGIN + self._skew).timestamp()
        """Its time at the begin of the loop, in seconds since 1970."""
        self._at = -1.0
        self._now = BEGIN

    def now(self) -> datetime:
        """Return the time in UTC, skewed."""
        at = self._loop.time()
        if at != self._at:
            self._at, self._now = at, BEGIN + timedelta(seconds=at) + self._skew
        return self._now

    def monotonic(self) -> float:
        """Return the virtual seconds that have passed."""
        return self._loop.time()


class Site:
    """One namespace."""

    def __init__(self, config: NamespaceConfig, clock: SkewedClock) -> None:
        """Create its entities."""
        self.name = config.name
        self.clock = clock
        self.namespace = Namespace(config, clock)
        self.is_away = False

    def lose_locks(self) -> None:
        """End all locks on messages and sessions, as when an entity moves to another node."""
        for entity in self.namespace.entities():
            if not isinstance(entity, Topic):
                entity.backlog.store.expire_locks()

    def lose_sessions(self) -> None:
        """End all locks on sessions without counting an attempt."""
        for entity in self.namespace.entities():
            if not isinstance(entity, Topic) and isinstance(entity.backlog.store, SessionStore):
                entity.backlog.store.lose_sessions()

    def set_status(self, path: str, status: EntityStatus) -> None:
        """Enable or disable a queue or topic."""
        entity = self.namespace.target(path)
        if isinstance(entity, Queue):
            entity.config = replace(entity.config, status=status)
        else:
            entity.config = replace(entity.config, status=status)

    def create_again(self, path: str) -> None:
        """Delete a queue or topic with what it holds, and create it again."""
        namespace = self.namespace
        entity = namespace.target(path)
        namespace.remove(entity)
        if isinstance(entity, Queue):
            namespace.queues[path.lower()] = Queue(entity.config, namespace)
        else:
            namespace.topics[path.lower()] = Topic(entity.config, namespace)


class Sites:
    """All sites, as the calendar of the loop."""

    def __init__(self, sites: dict[str, Site]) -> None:
        """Hold *sites* by name."""
        self._sites = list(sites.values())

    def next_deadline(self) -> float | None:
        """Return when something is due at a site, in the time of the loop."""
        found: float | None = None
        for site in self._sites:
            at = site.namespace.next_deadline()
            if at is not None:
                seconds = at / 1000 - site.clock.begin + _ROUNDING
                if found is None or seconds < found:
                    found = seconds
        return found

    def advance(self) -> None:
        """Do what is due everywhere."""
        for site in self._sites:
            site.namespace.advance()
