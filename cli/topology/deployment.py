"""
What `infra/main.bicep` takes as `tasks`: the entities that tasks need, who uses them, and what else the app reads.

The types are in `infra/modules/types.bicep`.
"""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from cli.topology.bicep import arm_name, entities_of
from cli.topology.needs import Needs
from shared.editors.options import Strict
from shared.editors.protection.key_names import KeyName
from shared.errors import ConfigError, Problem
from shared.tasks.files import JOURNAL, Configuration
from shared.tasks.heartbeats import heartbeat_targets
from shared.tasks.journal_models import BlobJournal, JournalFile
from shared.tasks.models import Connection

DEFAULT_JOURNAL = JournalFile(blob=BlobJournal(setting="JOURNAL"))
"""The journal of a deployment whose configuration has none of its own."""

_HOST_STORAGE = "AzureWebJobsStorage"
type _Uses = dict[str, dict[str, dict[str, list[Any]]]]


def deployment_of(configuration: Configuration, needs: Needs) -> dict[str, Any]:
    """Return the deployment of *configuration*; raises ConfigError for what the template cannot deploy."""
    problems = list(_problems(configuration))
    if problems:
        raise ConfigError(problems)
    uses = _uses(configuration)
    sites = []
    for key, needed in needs.namespaces.items():
        connection = configuration.connections[needs.aliases[key]]
        if connection.setting is None:
            # A namespace of somebody else, of which only the secret is known.
            continue
        sites.append(
            {
                "alias": needs.aliases[key],
                "kind": connection.kind,
                "setting": connection.setting,
                **entities_of(needed.values()),
                **uses[key],
            }
        )
    return {
        "version": version("busway"),
        "sites": sites,
        "functions": {task.task: task.functions() for task in configuration.tasks}
        | {tap.task: tap.functions() for tap in configuration.taps},
        "journal": _journal(configuration),
        "stores": sorted(_stores(configuration)),
        "secrets": sorted(_secrets(configuration)),
    }


def storage_settings(configuration: Configuration) -> set[str]:
    """Return the app settings of the storage accounts that the journal and the editors of a configuration use."""
    container = None if configuration.journal is None else configuration.journal.container
    return _stores(configuration) | (set() if container is None else {container.setting})


def _problems(configuration: Configuration) -> Iterator[Problem]:
    kinds: dict[str, tuple[str, Connection]] = {}
    for alias, connection in configuration.connections.items():
        other, first = kinds.setdefault(connection.key, (alias, connection))
        if first.end is not connection.end:
            text = f"has the app setting of {other}, which is of kind {first.kind}"
            yield Problem(f"connections.yaml: {alias}", text, "give each namespace an app setting of its own")
    if _HOST_STORAGE in storage_settings(configuration):
        text = f"names the storage of the Functions host, {_HOST_STORAGE}"
        hint = "name another app setting, such as JOURNAL; the deployment gives it a storage account"
        yield Problem(f"{JOURNAL} or an editor: setting", text, hint)


def _journal(configuration: Configuration) -> dict[str, Any] | None:
    journal = configuration.journal
    container = None if journal is None else journal.container
    if journal is None or (container is None and journal.event_hub is None):
        return None
    described: dict[str, Any] = {
        "setting": "JOURNAL" if container is None else container.setting,
        "container": "journal" if container is None or journal.event_hub is not None else container.container,
    }
    if journal.event_hub is not None:
        # Of several aliases of one namespace, the site has the first.
        key = configuration.connections[journal.event_hub.connection].key
        alias = next(alias for alias, connection in configuration.connections.items() if connection.key == key)
        described["hub"] = {"alias": alias, "name": journal.event_hub.hub}
    return described


def _uses(configuration: Configuration) -> _Uses:
    """Return the entities that the app receives from and sends to, by the key of their connection."""
    uses: _Uses = {
        connection.key: {
            "receivesFrom": {"queues": [], "subscriptions": [], "hubs": []},
            "sendsTo": {"queues": [], "topics": [], "hubs": []},
        }
        for connection in configuration.connections.values()
    }

    def add(alias: str, what: str, kind: str, *names: str) -> None:
        connection, parts = configuration.connections[alias], [arm_name(name) for name in names]
        place = parts[0] if len(parts) == 1 else {"topic": parts[0], "name": parts[1]}
        if connection.is_namespace and place not in uses[connection.key][what][kind]:
            uses[connection.key][what][kind].append(place)

    for source in [*(task.source for task in configuration.tasks), *(tap.source for tap in configuration.taps)]:
        if source.topic is not None:
            add(source.connection, "receivesFrom", "subscriptions", source.topic, source.subscription or "")
        else:
            kind = "queues" if source.queue is not None else "hubs"
            add(source.connection, "receivesFrom", kind, source.queue or source.hub or "")
    for target in [each for task in configuration.tasks for each in (*task.targets(), *heartbeat_targets(task))]:
        add(target.connection, "sendsTo", f"{target.kind}s", target.entity)
    for source in (task.source for task in configuration.tasks if task.heartbeat is not None):
        kind = "queues" if source.queue is not None else "topics" if source.topic is not None else "hubs"
        add(source.connection, "sendsTo", kind, source.sent_to)
    journal = configuration.journal
    if journal is not None and journal.event_hub is not None:
        add(journal.event_hub.connection, "sendsTo", "hubs", journal.event_hub.hub)
    return uses


def _stores(configuration: Configuration) -> set[str]:
    """Return the app settings of editors' stores: options with a setting and a container in it."""
    options = (model for task in configuration.tasks for step in task.editors for model in _models(step))
    return {vars(option)["setting"] for option in options if {"setting", "container"} <= set(type(option).model_fields)}


def _secrets(configuration: Configuration) -> set[str]:
    """Return the secrets that connections and the keys of editors name."""
    names = {connection.secret for connection in configuration.connections.values() if connection.secret is not None}
    for task in configuration.tasks:
        for model in (model for step in task.editors for model in _models(step)):
            annotations: dict[str, object] = {
                name: model_field.annotation for name, model_field in type(model).model_fields.items()
            }
            names |= {getattr(model, name) for name, annotation in annotations.items() if annotation is KeyName}
    return names


def _models(value: object) -> Iterator[Strict]:
    """Yield *value* and what it contains, as far as they are options."""
    if isinstance(value, Strict):
        yield value
        for name in type(value).model_fields:
            yield from _models(getattr(value, name))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _models(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _models(each)
