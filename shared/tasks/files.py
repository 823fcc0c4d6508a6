"""Reads a folder of connections and tasks and reports all problems at once."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from shared.editors.options import FOLDER
from shared.ends.kind import Holds, Kind
from shared.ends.registry import kinds
from shared.errors import ConfigError, Problem
from shared.tasks.end_problems import end_problems
from shared.tasks.faults import joined, problem_of
from shared.tasks.heartbeats import heartbeat_targets
from shared.tasks.journal_models import JournalFile, TapFile
from shared.tasks.models import SITE, Connection, TaskFile
from shared.tasks.routes import Target
from shared.tasks.source import DEFAULT_CONSUMER_GROUP, Source
from shared.tasks.taps import tap_problems
from shared.tasks.yaml_documents import documents_in

CONNECTIONS = "connections.yaml"
JOURNAL = "journal.yaml"
TASKS = "tasks"


@dataclass(frozen=True)
class Configuration:
    """The content of one configuration folder."""

    connections: Mapping[str, Connection]
    tasks: Sequence[TaskFile]
    places: Mapping[str, str]
    """The file of each task, by its name in lower case."""
    taps: Sequence[TapFile] = ()
    journal: JournalFile | None = None

    def place(self, task: TaskFile | TapFile) -> str:
        """Return the file of a task, and its document there if there are several."""
        return self.places[task.task.lower()]

    def site(self, alias: str) -> str:
        """Return the short name of the site behind a connection."""
        return self.connections[alias].site or alias

    def hubs(self, alias: str) -> set[str]:
        """Return the hubs that the tasks name with a connection."""
        return {end.hub for end in self._ends() if end.connection == alias and end.hub is not None}

    def capabilities(self, alias: str) -> dict[str, str]:
        """Return `queue` or `topic` for each of these that tasks send to with a connection."""
        targets = [target for target in self._targets() if target.connection == alias]
        return {target.entity: target.kind for target in targets if target.kind in ("queue", "topic")}

    def entities(self, holds: Holds) -> dict[str, set[str]]:
        """Return the entities that hold this and that tasks use, by the key of their connection."""
        names: dict[str, set[str]] = {}
        for end in self._ends():
            connection = self.connections[end.connection]
            if connection.end.holds is holds:
                names.setdefault(connection.key, set()).add(end.entity)
        return names

    def sends_to(self, alias: str) -> bool:
        """Return whether a task has a target with a connection."""
        return any(target.connection == alias for target in self._targets())

    def _targets(self) -> list[Target]:
        return [target for task in self.tasks for target in (*task.targets(), *heartbeat_targets(task))]

    def _ends(self) -> list[Source | Target]:
        sources = [task.source for task in self.tasks] + [tap.source for tap in self.taps]
        return [*sources, *self._targets()]

    def webhooks(self) -> dict[str, set[str]]:
        """Return the topics whose events tasks take by a webhook, by the key of each connection that may have some."""
        names: dict[str, set[str]] = {
            connection.key: set() for connection in self.connections.values() if "webhook" in connection.end.sources
        }
        for task in self.tasks:
            if task.source.webhook is not None:
                names.setdefault(self.connections[task.source.connection].key, set()).add(task.source.webhook)
        return names


def load(folder: Path) -> Configuration:
    """Return the configuration in *folder*; raises ConfigError with every problem of every file."""
    _check_folder(folder)
    problems: list[Problem] = []
    connections = _connections(folder / CONNECTIONS, problems)
    tasks: list[TaskFile] = []
    taps: list[TapFile] = []
    places: dict[str, str] = {}
    functions: dict[str, str] = {}
    readers: dict[tuple[str, str, str], str] = {}
    files = sorted(path for path in (folder / TASKS).glob("*") if path.suffix in {".yaml", ".yml"})
    if not files:
        problems.append(Problem(str(folder / TASKS), "there are no task files", "add one, such as tasks/copy.yaml"))
    for path in files:
        for place, document in documents_in(path, problems):
            # Check the raw document, so that another problem in it does not hide those of its connections.
            problems += _connection_problems(document, place, connections)
            task: TaskFile | TapFile | None
            if isinstance(document, dict) and "tap" in document:
                task = _validated(TapFile, document, place, problems, folder)
            else:
                task = _validated(TaskFile, document, place, problems, folder)
            if task is None:
                continue
            problems += [
                Problem(f"{place}: task", f"{name!r} is already the name of a task in {functions[name.lower()]}")
                for name in task.functions()
                if name.lower() in functions
            ]
            functions |= dict.fromkeys((name.lower() for name in task.functions()), place)
            places[task.task.lower()] = place
            if isinstance(task, TapFile):
                taps.append(task)
            else:
                tasks.append(task)
            problems += _reader_problems(task, place, readers)
    journal = _journal(folder / JOURNAL, connections, problems)
    if problems:
        raise ConfigError(problems)
    usable = {alias: connection for alias, connection in connections.items() if connection is not None}
    problems += tap_problems(taps, tasks, journal, places)
    problems += _dispatch_problems(tasks, journal, places)
    problems += end_problems(tasks, usable, journal, places)
    if problems:
        raise ConfigError(problems)
    return Configuration(usable, tasks, places, taps, journal)


def load_connections(folder: Path) -> dict[str, Connection]:
    """Return the connections in *folder* without reading its tasks; raises ConfigError with all its problems."""
    _check_folder(folder)
    problems: list[Problem] = []
    connections = _connections(folder / CONNECTIONS, problems)
    if problems:
        raise ConfigError(problems)
    return {alias: connection for alias, connection in connections.items() if connection is not None}


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        what = "is a file, expected a folder" if folder.exists() else "there is no such folder"
        raise ConfigError([Problem(str(folder), what, f"name the folder that contains {CONNECTIONS} and {TASKS}/")])


def read_one[Model: BaseModel](path: Path, model: type[Model]) -> Model:
    """Return the only document of a YAML file; raises ConfigError with every problem of it."""
    problems: list[Problem] = []
    documents = list(documents_in(path, problems))
    if len(documents) > 1:
        problems.append(Problem(str(path), f"has {len(documents)} documents, expected one"))
    read = [_validated(model, document, place, problems) for place, document in documents]
    if problems or read[0] is None:
        raise ConfigError(problems)
    return read[0]


def _journal(path: Path, connections: Mapping[str, Connection | None], problems: list[Problem]) -> JournalFile | None:
    """Return the configuration of the journal; None without such a file: withheld messages are then only logged."""
    if not path.exists():
        return None
    journal = None
    for place, document in documents_in(path, problems):
        journal = _validated(JournalFile, document, place, problems)
        if journal is not None:
            problems += _connection_problems(document, place, connections)
    return journal


def _dispatch_problems(
    tasks: Sequence[TaskFile], journal: JournalFile | None, places: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield the tasks that the host gives one message at a time, if a binding of each invocation writes the journal."""
    if journal is None or journal.event_hub is None:
        return
    for task in tasks:
        if task.levers.dispatch == "single" and task.journal is not False:
            text = "is `single`, but the journal is in an event hub, to which the host sends for one invocation"
            hint = "keep the journal in `blob`, use `lanes`, or set `journal: off` in this task"
            yield Problem(f"{places[task.task.lower()]}: dispatch", text, hint)


def _connections(path: Path, problems: list[Problem]) -> dict[str, Connection | None]:
    """Return the connections by alias; None for an invalid one, so that it is reported once and not at every use."""
    connections: dict[str, Connection | None] = {}
    for place, document in documents_in(path, problems):
        if not isinstance(document, dict):
            problems.append(Problem(place, "expected a mapping of aliases to connections"))
            continue
        for alias, options in document.items():
            if not isinstance(alias, str) or not re.fullmatch(SITE, alias):
                hint = "text in quotes, such as 'no'" if not isinstance(alias, str) else ""
                problem = f"is not a valid alias, expected text that matches {SITE}"
                problems.append(Problem(f"{place}: {alias}", problem, hint))
                continue
            connections[alias] = _validated(Connection, options, f"{place}: {alias}", problems)
    return connections


def connections_schema() -> dict[str, Any]:
    """Return the JSON schema of connections.yaml."""
    return TypeAdapter(dict[Annotated[str, Field(pattern=SITE)], Connection]).json_schema()


def _reader_problems(
    task: TaskFile | TapFile, place: str, readers: dict[tuple[str, str, str], str]
) -> Iterator[Problem]:
    """Yield a problem if another task reads the hub with the same consumer group."""
    source = task.source
    if source.hub is None:
        return
    group = source.consumer_group or DEFAULT_CONSUMER_GROUP
    reader = readers.setdefault((source.connection, source.hub.lower(), group.lower()), task.task)
    if reader != task.task:
        text = f"{reader!r} already reads {source.hub} with {group}, and each would receive only some of the events"
        yield Problem(f"{place}: source.consumer_group", text, "give each task its own consumer group")


def _connection_problems(
    document: object, place: str, connections: Mapping[str, Connection | None]
) -> Iterator[Problem]:
    for path, alias, fits in _connection_uses(document):
        connection = connections.get(alias)
        where = f"{place}: {path}.connection"
        if alias not in connections:
            near = difflib.get_close_matches(alias, connections, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"{CONNECTIONS} has {', '.join(connections) or 'none'}"
            yield Problem(where, f"unknown connection {alias!r}", hint)
        elif connection is not None and not fits(connection.end):
            hint = connection.end.source_hint if path == "source" else ""
            expected = " or ".join(map(str, kinds(fits)))
            yield Problem(where, f"{alias!r} is of kind {connection.kind}, expected {expected}", hint)
        elif connection is not None and connection.setting is None and path == "source" and connection.end.has_trigger:
            # The host opens the trigger, and it reads app settings.
            hint = (
                "give it a `setting` as well; on Azure that app setting may be a reference to the vault,"
                f" @Microsoft.KeyVault(SecretUri=https://VAULT.vault.azure.net/secrets/{connection.secret})"
            )
            yield Problem(where, f"{alias!r} has a secret and no setting, which the Functions host needs", hint)
    yield from _binding_problems(document, place, connections)


def _binding_problems(document: object, place: str, connections: Mapping[str, Connection | None]) -> Iterator[Problem]:
    """Yield the routes that the host sends to with a connection that it cannot open."""
    routes = document.get("routes") if isinstance(document, dict) else None
    for index, route in enumerate(routes if isinstance(routes, list) else ()):
        target = route.get("target") if isinstance(route, dict) and route.get("via") == "binding" else None
        alias = target.get("connection") if isinstance(target, dict) else None
        connection = connections.get(alias) if isinstance(alias, str) else None
        if connection is not None and not connection.is_namespace:
            where, kind = f"{place}: routes[{index}].via", connection.kind
            yield Problem(where, f"{alias!r} is of kind {kind}, which has no output binding", "remove `via: binding`")
        elif connection is not None and connection.setting is None:
            where = f"{place}: routes[{index}].via"
            hint = "give the connection a `setting` as well, or send with the SDK: remove `via: binding`"
            yield Problem(where, f"{alias!r} has a secret and no setting, which an output binding needs", hint)


def _connection_uses(document: object) -> Iterator[tuple[str, str, Callable[[Kind], bool]]]:
    """Yield each use of a connection in a task: its path there, the alias, and whether a kind fits."""
    if not isinstance(document, dict):
        return
    routes = document.get("routes")
    uses = [(name, document.get(name)) for name in ("source", "rejects", "event_hub")]
    for index, route in enumerate(routes if isinstance(routes, list) else ()):
        target, path = route.get("target") if isinstance(route, dict) else None, f"routes[{index}].target"
        uses += [(f"{path}[{number}]", one) for number, one in enumerate(target if isinstance(target, list) else ())]
        uses.append((path, target))
    for path, entity in uses:
        if isinstance(entity, dict) and isinstance(entity.get("connection"), str):
            yield path, entity["connection"], _fits(path, entity, is_tap="tap" in document)


def _fits(path: str, entity: Mapping[str, object], *, is_tap: bool) -> Callable[[Kind], bool]:
    """Return what says whether connections of a kind may have an entity of a task."""
    key = next((name for name in ("hub", "address", "webhook", "queue") if entity.get(name) is not None), "topic")
    is_source = path in {"source", "event_hub"}

    def fits(kind: Kind) -> bool:
        keys = kind.sources if is_source else kind.targets
        if key not in {"queue", "topic"}:  # at the wrong place it has a problem of its own
            keys = kind.sources | kind.targets
        return key in keys and (kind.is_namespace or not (is_tap or path == "event_hub"))

    return fits


def _validated[Model: BaseModel](
    model: type[Model], document: object, place: str, problems: list[Problem], folder: Path | None = None
) -> Model | None:
    try:
        return model.model_validate(document, context={FOLDER: folder})
    except ValidationError as error:
        faults = error.errors()
        places = [fault["loc"] for fault in faults]
        inner = {place[:-1] for place in places} | {place[:1] for place in places if len(place) > 1}
        problems += joined(
            [
                problem_of(model, _where(place, _path_in(document, fault["loc"])), dict(fault), document)
                for fault in faults
                # A list whose only item is invalid is not also too short.
                if not (fault["type"] == "too_short" and fault["loc"] in inner)
            ]
        )
        return None


_MEMBERS = frozenset(("word", "mapping", "list"))
"""The names of members of unions, by what YAML has in their place."""


def _path_in(document: object, location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return *location* without the names that pydantic gives to the members of a union."""
    steps: list[int | str] = []
    for position, step in enumerate(location):
        is_last = position == len(location) - 1
        if isinstance(document, dict) and (step in document or (is_last and step not in _MEMBERS)):
            document = document.get(step)
        elif isinstance(document, list) and isinstance(step, int) and step < len(document):
            document = document[step]
        else:
            continue
        steps.append(step)
    return tuple(steps)


def _where(place: str, location: tuple[int | str, ...]) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return f"{place}: {path}" if path else place
