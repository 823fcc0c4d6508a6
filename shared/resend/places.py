"""The entities that the commands work on, and where their messages came from."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote

from shared.ends.namespace import Namespace
from shared.errors import ConfigError, Problem
from shared.message.arrival import Origin
from shared.message.metadata import DEAD_LETTER_QUEUES
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

DEAD_LETTERS = "/$DeadLetterQueue"
SUBSCRIPTION = "/subscriptions/"


class Place(NamedTuple):
    """A queue, subscription or dead-letter queue, as the services name it."""

    alias: str
    site: str
    setting: str
    entity: str
    rejected: tuple[Origin, ...] = ()
    """The sources of the tasks whose `rejects` it is: only there stamps count, which any producer can write."""

    @property
    def origin(self) -> Origin:
        """The place as the source of its messages."""
        return Origin(self.site, self.entity)

    @property
    def is_dead_letter_queue(self) -> bool:
        """Whether it is the dead-letter queue of an entity."""
        return self.entity.lower().endswith(DEAD_LETTER_QUEUES)

    @property
    def has_reasons(self) -> bool:
        """Whether its messages were given up, each for a reason."""
        return self.is_dead_letter_queue or bool(self.rejected)

    def dead_letters(self) -> "Place":
        """Return the dead-letter queue of this entity."""
        return self._replace(entity=self.entity + DEAD_LETTERS, rejected=())

    def connection(self, settings: Mapping[str, str]) -> Namespace:
        """Return its namespace for a receiver; raises ConfigError without the app setting."""
        return Namespace.of(self.setting, settings)

    def __str__(self) -> str:
        return f"{self.site}/{self.entity}"


class Scene(NamedTuple):
    """An entity to work on, with the configuration and the app settings."""

    place: Place
    configuration: Configuration
    settings: Mapping[str, str]


class Destination(NamedTuple):
    """A queue, topic or event hub that messages are sent to."""

    alias: str
    site: str
    entity: str

    def __str__(self) -> str:
        return f"{self.site}/{self.entity}"


def file_of(place: Place | Destination) -> str:
    """Return the name of an entity as that of a file; names are compared without regard to case, as Azure's."""
    return f"{place.site}/{quote(place.entity.lower(), safe='')}"


def place_at(alias: str, entity: str, configuration: Configuration) -> Place:
    """Return the *entity* of a connection; raises ConfigError if the connection has only a secret."""
    setting = configuration.connections[alias].setting
    if setting is None:
        raise ConfigError([Problem(f"connection {alias}", "has only a secret", "expected a setting to receive with")])
    return Place(alias, configuration.site(alias), setting, entity, _rejected(alias, entity, configuration))


def dead_letter_queue(text: str, configuration: Configuration) -> Place:
    """Return the dead-letter queue that *text* names: CONNECTION/ENTITY or a task, for its source."""
    task = task_named(text, configuration)
    if task is not None and task.source.hub is not None:
        where = f"the source of {task.task}"
        raise ConfigError([Problem(where, "is an event hub, which has no dead-letter queue", "see `busway rejects`")])
    found = queue_of(text, configuration)
    return found if found.is_dead_letter_queue else found.dead_letters()


def queue_of(text: str, configuration: Configuration) -> Place:
    """Return the queue or subscription that *text* names: CONNECTION/ENTITY or a task, for its source."""
    task = task_named(text, configuration)
    if task is None:
        return entity_named(text, configuration)
    if not configuration.connections[task.source.connection].end.has_dead_letters or task.source.hub is not None:
        found = f"{task.source.connection}/{task.source.entity}"
        raise ConfigError([Problem(f"the source of {task.task}", "is not a queue or subscription", f"name {found}")])
    return place_at(task.source.connection, task.source.entity, configuration)


def rejects_of(text: str, configuration: Configuration) -> Place:
    """Return the entity with rejected messages that *text* names: CONNECTION/ENTITY or a task."""
    task = task_named(text, configuration)
    if task is None:
        return entity_named(text, configuration)
    if task.rejects is None:
        hint = f"its rejected messages are dead letters: busway dead list {task.task}"
        raise ConfigError([Problem(f"task {task.task}", "has no rejects", hint)])
    if task.rejects.queue is None:
        hint = "name a subscription of it, or a queue" if task.rejects.topic else "its events cannot be completed"
        found = f"sends its rejected messages to the {task.rejects.kind} {task.rejects.entity}, expected a queue"
        raise ConfigError([Problem(f"task {task.task}", found, hint)])
    return place_at(task.rejects.connection, task.rejects.queue, configuration)


def dead_letter_queues(configuration: Configuration) -> list[Place]:
    """Return the dead-letter queues of the sources and target queues that the tasks name."""
    return [queue.dead_letters() for queue in queues(configuration)]


def queues(configuration: Configuration) -> list[Place]:
    """Return the sources and the target queues that the tasks name."""
    found: list[tuple[str, str]] = []
    for task in configuration.tasks:
        source = task.source
        if source.hub is None:
            found.append((source.connection, source.entity.removesuffix(source.sub_queue)))
        found += [(target.connection, target.queue) for target in task.targets() if target.queue is not None]
    return _places(found, configuration)


def rejects_queues(configuration: Configuration) -> list[Place]:
    """Return the queues that tasks send their rejected messages to."""
    found = [task.rejects for task in configuration.tasks if task.rejects is not None]
    return _places([(each.connection, each.queue) for each in found if each.queue is not None], configuration)


def _places(entities: Iterable[tuple[str, str]], configuration: Configuration) -> list[Place]:
    """Return each of *entities*, a connection and a name, that messages can be received from."""
    known = namespaces(configuration)
    return [place_at(alias, entity, configuration) for alias, entity in dict.fromkeys(entities) if alias in known]


def task_named(name: str, configuration: Configuration) -> TaskFile | None:
    """Return the task of this name, in any case."""
    return next((task for task in configuration.tasks if task.task.lower() == name.lower()), None)


def namespaces(configuration: Configuration) -> list[str]:
    """Return the connections to Service Bus that messages can be received from: those with a setting."""
    return [alias for alias, each in configuration.connections.items() if each.end.has_dead_letters and each.setting]


def entity_named(text: str, configuration: Configuration, option: str = "") -> Place:
    """Return the queue or subscription that *text*, CONNECTION/ENTITY of an *option*, names; raises ConfigError."""
    alias, _, entity = text.partition("/")
    check_end(text)
    if alias not in namespaces(configuration) or not entity:
        tasks = [] if option else [task.task for task in configuration.tasks]
        names = [f"{each}/ENTITY" for each in namespaces(configuration)] + tasks
        expected = ", ".join(names) or "a connection of kind service-bus in connections.yaml"
        found = "is not a queue or subscription" + ("" if option else ", or a task")
        raise ConfigError([Problem(f"{option} {text}".strip(), found, f"expected {expected}")])
    return place_at(alias, entity, configuration)


def check_end(text: str) -> None:
    """Raise ConfigError if a name ends with a slash, which is what a shell makes of west/orders/$DeadLetterQueue."""
    if text.endswith("/"):
        hint = "expected a name without it; a shell removes $DeadLetterQueue unless it is in single quotes"
        raise ConfigError([Problem(text, "ends with a slash", hint)])


def destination_named(text: str, configuration: Configuration) -> Destination:
    """Return the queue, topic or hub that *text* names as CONNECTION/ENTITY; raises ConfigError."""
    alias, _, entity = text.partition("/")
    check_end(f"--to {text}")
    if alias not in configuration.connections or not entity:
        expected = ", ".join(f"{name}/ENTITY" for name in configuration.connections)
        raise ConfigError([Problem(f"--to {text}", "is not an entity of a connection", f"expected {expected}")])
    if SUBSCRIPTION in entity.lower() or entity.lower().endswith(DEAD_LETTER_QUEUES):
        found = "takes no messages from senders"
        raise ConfigError([Problem(f"--to {text}", found, "expected a queue, a topic or an event hub")])
    return Destination(alias, configuration.site(alias), entity)


def place_of(destination: Destination, configuration: Configuration) -> Place | None:
    """Return a queue or topic that takes requests of a sender, None if a destination is something else."""
    if destination.alias not in namespaces(configuration):
        return None
    setting = configuration.connections[destination.alias].key
    return Place(destination.alias, destination.site, setting, destination.entity)


def destination_of(text: str, configuration: Configuration) -> Destination:
    """Return the destination whose text, SITE/ENTITY, is *text*; raises ConfigError if no connection leads there."""
    site, _, entity = text.partition("/")
    aliases = [alias for alias in configuration.connections if configuration.site(alias) == site]
    service_bus = [alias for alias in aliases if configuration.connections[alias].end.has_dead_letters]
    return destination_named(f"{next(iter(service_bus or aliases), site)}/{entity}", configuration)


def original(path: str, site: str, configuration: Configuration, *, prefer: str | None = None) -> Destination | str:
    """
    Return the entity *path* of *site* as a destination, or the reason why messages cannot simply go back to it.

    *prefer* is the alias to use if several connections lead to the site.
    """
    if SUBSCRIPTION in path.lower():
        topic = path[: path.lower().index(SUBSCRIPTION)]
        return (
            f"came from {site}/{path}: only the topic {topic} takes messages, and all its subscriptions would get them"
        )
    if path.lower().endswith(DEAD_LETTER_QUEUES):
        return f"came from {site}/{path}, which takes no messages from senders"
    aliases = [alias for alias in configuration.connections if configuration.site(alias) == site]
    kinds = {configuration.connections[alias].kind for alias in aliases}
    hubs = {task.source.hub for task in configuration.tasks if task.source.connection in aliases}
    if len(kinds) > 1:
        ends = {alias: configuration.connections[alias].end for alias in aliases}
        aliases = [alias for alias, end in ends.items() if (end.has_hubs if path in hubs else end.has_dead_letters)]
    if not aliases:
        return f"came from {site}/{path}: no connection in connections.yaml leads to this site"
    return Destination(prefer if prefer in aliases else aliases[0], site, path)


def _rejected(alias: str, entity: str, configuration: Configuration) -> tuple[Origin, ...]:
    """Return the sources of the tasks whose `rejects` is *entity*, a queue or a subscription of a topic."""
    owner = entity.lower()
    if owner.endswith(DEAD_LETTER_QUEUES):
        return ()
    owner = owner.partition(SUBSCRIPTION)[0]
    return tuple(
        Origin(configuration.site(task.source.connection), task.source.entity)
        for task in configuration.tasks
        if task.rejects is not None
        and configuration.site(task.rejects.connection) == configuration.site(alias)
        and (task.rejects.entity or "").lower() == owner
    )
