"""Reads the tasks of the C# sample: the bindings of a function.json."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shared.config.models import NAME

_TRIGGERS = {"eventhubtrigger": "event-hubs", "servicebustrigger": "service-bus"}
_OUTPUTS = {"eventhub": "event-hubs", "servicebus": "service-bus"}
_STANDARD = re.compile(
    r"^Azure\.Messaging\.Replication\.(EventHub|ServiceBus)ReplicationTasks\.ForwardTo(EventHub|ServiceBus)$"
)


class End(NamedTuple):
    """One end of a task: the kind of its namespace, the app setting, and the entity as a task file names it."""

    kind: str
    setting: str
    entity: dict[str, Any]


class Imported(NamedTuple):
    """A task of the sample, and what its file says that a task file does not."""

    name: str
    source: End
    target: End
    notes: list[str]


class NotImported(ValueError):
    """A task that cannot be imported; the text is the reason."""


def read_task(file: Path) -> Imported:
    """Return the task of a function.json; raises NotImported."""
    document = read_json(file)
    name = file.parent.name
    if not re.fullmatch(NAME, name):
        raise NotImported(f"its folder's name cannot be that of a task, expected text that matches {NAME}")
    if document.get("disabled") is True:
        raise NotImported("is disabled")
    bindings = document.get("bindings")
    bindings = [each for each in bindings if isinstance(each, dict)] if isinstance(bindings, list) else []
    inputs = [each for each in bindings if str(each.get("direction", "in")).lower() == "in"]
    outputs = [each for each in bindings if str(each.get("direction")).lower() == "out"]
    if len(inputs) != 1 or len(outputs) != 1:
        raise NotImported(f"has {len(inputs)} input and {len(outputs)} output bindings, expected one of each")
    notes = []
    entry = document.get("entryPoint")
    if not isinstance(entry, str) or not _STANDARD.match(entry):
        notes.append(f"its entry point {entry!r} is code of your own: express it with editors, or with a python editor")
    if "retry" in document:
        notes.append("its retry policy is dropped: a batch waits for its target as limits.hold says")
    return Imported(name, _source(inputs[0]), _target(outputs[0]), notes)


def read_json(file: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; raises NotImported."""
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise NotImported(f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        # The decoder's error does not quote the file.
        raise NotImported(f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise NotImported("is not a JSON object")
    return document


def _source(binding: Mapping[str, Any]) -> End:
    kind = _kind(binding, _TRIGGERS)
    setting = _text(binding, "connection")
    if kind == "event-hubs":
        entity: dict[str, Any] = {"hub": _text(binding, "eventHubName")}
        if "consumerGroup" in binding:
            entity["consumer_group"] = _text(binding, "consumerGroup")
        return End(kind, setting, entity)
    if "topicName" in binding:
        entity = {"topic": _text(binding, "topicName"), "subscription": _text(binding, "subscriptionName")}
    else:
        entity = {"queue": _text(binding, "queueName")}
    if binding.get("isSessionsEnabled") is True:
        entity["sessions"] = True
    return End(kind, setting, entity)


def _target(binding: Mapping[str, Any]) -> End:
    kind = _kind(binding, _OUTPUTS)
    setting = _text(binding, "connection")
    if kind == "event-hubs":
        return End(kind, setting, {"hub": _text(binding, "eventHubName")})
    if "topicName" in binding:
        return End(kind, setting, {"topic": _text(binding, "topicName")})
    # The sample's own files name a queue as eventHubName here.
    key = next((each for each in ("queueName", "queueOrTopicName", "eventHubName") if each in binding), "queueName")
    return End(kind, setting, {"queue": _text(binding, key)})


def _kind(binding: Mapping[str, Any], kinds: Mapping[str, str]) -> str:
    found = binding.get("type")
    kind = kinds.get(str(found).lower())
    if kind is None:
        raise NotImported(f"has a binding of type {found!r}, expected one of {', '.join(kinds)}")
    return kind


def _text(binding: Mapping[str, Any], key: str) -> str:
    value = binding.get(key)
    if not isinstance(value, str) or not value:
        raise NotImported(f"has a binding without {key}")
    if "%" in value:
        raise NotImported(f"takes {key} from the app setting {value}: write the name itself into function.json")
    return value
