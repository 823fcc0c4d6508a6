"""Writes a configuration folder from the tasks of the sample."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cli.sample_import.reading import End, Imported
from shared.config.files import CONNECTIONS, TASKS

_HOST = re.compile(r"(?i)(?:^|;)\s*Endpoint\s*=\s*sb://([A-Za-z0-9][A-Za-z0-9.-]*)")
_WIDTH = 120


class Connections:
    """The connections that tasks need: one per namespace if its host is known, else one per app setting."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Find namespaces in *settings*, the values of a local.settings.json."""
        self._settings = settings
        self._aliases: dict[tuple[str, str], str] = {}
        self.files: dict[str, dict[str, str]] = {}
        self.changed: dict[str, set[str]] = {}
        """The old app settings by the new one."""

    def alias(self, end: End) -> str:
        """Return the alias of the connection of *end*."""
        host = self._host(end.setting)
        key = end.kind, host or end.setting
        if key not in self._aliases:
            words = re.sub(r"[^A-Za-z0-9]+", "-", host.partition(".")[0] if host else end.setting).strip("-").lower()
            alias = words if words[:1].isalpha() else f"site-{words}"
            while alias in self.files:
                alias += "-hubs" if end.kind == "event-hubs" else "-bus"
            self._aliases[key] = alias
            self.files[alias] = {"kind": end.kind, "setting": alias.upper().replace("-", "_")}
        alias = self._aliases[key]
        self.changed.setdefault(self.files[alias]["setting"], set()).add(end.setting)
        return alias

    def _host(self, setting: str) -> str | None:
        value = self._settings.get(setting)
        match = _HOST.search(value) if isinstance(value, str) else None
        return None if match is None else match[1].lower()


def task_document(task: Imported, connections: Connections) -> dict[str, Any]:
    """Return the task file of *task*."""
    source = {"connection": connections.alias(task.source), **task.source.entity}
    target = {"connection": connections.alias(task.target), **task.target.entity}
    document: dict[str, Any] = {"task": task.name, "source": source, "routes": [{"target": target}]}
    if task.source.kind == "event-hubs":
        # A hub has no dead-letter queue.
        name = f"{task.source.entity['hub']}-rejected"
        is_queue = task.target.kind == "service-bus"
        place = {"connection": target["connection"], "queue": name} if is_queue else None
        document["rejects"] = place or {"connection": source["connection"], "hub": name}
    return document


def write(folder: Path, documents: Sequence[Mapping[str, Any]], connections: Connections) -> None:
    """Write the files; raises OSError."""
    (folder / TASKS).mkdir(parents=True, exist_ok=True)
    (folder / CONNECTIONS).write_text(_yaml(connections.files))
    for document in documents:
        (folder / TASKS / f"{document['task']}.yaml").write_text(_yaml(document))


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=_WIDTH)
