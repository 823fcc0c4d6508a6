"""The files beside a configuration: the Config.json files of its connections' namespaces, and its app's host.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from busway_broker.config import NamespaceConfig
from busway_broker.config_file import load_config
from host.settings import load_host_options
from shared.ends.kind import Holds
from shared.errors import ConfigError, Problem
from shared.review import Entities, HostFile
from shared.tasks.models import Connection

ENTITIES = "entities"
"""The subfolder of a configuration folder with a Config.json for each connection, named after it."""

_UNKNOWN = "sessions, times to live, duplicate windows, message sizes, partition counts and deployed rules"


def beside(folder: Path) -> list[Path]:
    """Return the Config.json files in a configuration folder, sorted by name."""
    return sorted((folder / ENTITIES).glob("*.json"))


def settings_of(file: Path, connections: Mapping[str, Connection]) -> set[str]:
    """Return the app settings of the connections that have the name of *file*, a Config.json of one namespace."""
    (namespace, *others) = load_config([file])
    return set() if others else _settings(file.stem, namespace, connections)


def entities_of(files: Sequence[str], connections: Mapping[str, Connection]) -> Entities:
    """
    Return the entities of *files*, each a Config.json of the emulators or CONNECTION=Config.json.

    Without CONNECTION=, the file's name names the connection; if it holds several namespaces, their names do. A name is
    an alias, an app setting or a site, in any case. Raises ConfigError for a file that cannot be read and for a
    namespace without a connection.
    """
    return Entities(entities_files(files, connections))


def entities_files(files: Sequence[str], connections: Mapping[str, Connection]) -> dict[str, NamespaceConfig]:
    """Return the namespaces of *files*, as `entities_of` does, by the key of their connection."""
    namespaces: dict[str, NamespaceConfig] = {}
    problems: list[Problem] = []
    for argument in files:
        alias, path = argument.split("=", 1) if "=" in argument else ("", argument)
        read = load_config([path])
        for namespace in read:
            name = alias or (Path(path).stem if len(read) == 1 else namespace.name)
            settings = _settings(name, namespace, connections)
            if not settings:
                hint = f"CONNECTION=FILE with one of {', '.join(connections)}"
                problems.append(Problem(path, f"is for {name!r}, which is not a connection of this kind", hint))
            namespaces |= dict.fromkeys(settings, namespace)
    if problems:
        raise ConfigError(problems)
    return namespaces


def _settings(name: str, namespace: NamespaceConfig, connections: Mapping[str, Connection]) -> set[str]:
    """Return the keys of the connections that *name* refers to and that have the namespace's kind."""
    # A namespace of the local broker can also replace another broker.
    holds = Holds.EVENTS if namespace.hubs else Holds.MESSAGES
    return {
        connection.key
        for alias, connection in connections.items()
        if connection.end.holds is holds
        and name.lower() in (alias.lower(), (connection.setting or alias).lower(), (connection.site or alias).lower())
    }


def unchecked(entities: Entities, connections: Mapping[str, Connection]) -> list[str]:
    """Return a sentence about what could not be checked, if anything: task files do not contain it."""
    missing = [
        alias
        for alias, connection in connections.items()
        if connection.is_namespace and entities.namespace(connection) is None
    ]
    if not missing:
        return []
    names = " and ".join([*filter(None, [", ".join(missing[:-1])]), missing[-1]])
    hint = "`busway export` writes them into config/entities"
    return [f"Not checked without --entities: {_UNKNOWN} of {names}; {hint}."]


HOST_FILE = "host.json"


def host_file_above(folder: Path) -> HostFile | None:
    """Return what the host.json nearest above *folder* says, None without one; raises ConfigError if it is invalid."""
    app = next((parent for parent in folder.resolve().parents if (parent / HOST_FILE).is_file()), None)
    if app is None:
        return None
    options = load_host_options(app)
    return HostFile(
        HOST_FILE,
        options.function_timeout,
        options.service_bus.max_message_batch_size,
        options.event_hubs.max_event_batch_size,
        options.service_bus.prefetch_count,
        options.service_bus.max_auto_lock_renewal_duration,
        options.service_bus.max_concurrent_calls_per_session,
        options.service_bus.max_concurrent_sessions,
        options.queues.message_encoding,
        options.queues.max_dequeue_count,
        options.telemetry_mode,
    )
