"""A Config.json that gets the entities of tasks, and keeps what it has besides."""

from collections.abc import Iterable, Mapping
from typing import Any

from shared.printable import json_lines

_DECIDED = ("RequiresSession", "RequiresDuplicateDetection")
"""What a task decides of an entity; the rest is what the file has."""
_NAMESPACES = ("Namespaces", "NamespaceConfig")


def merged(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Return the document *before* with the entities of *wanted*; an entity of both keeps its own settings."""
    config = dict(before.get("UserConfig") or {})
    for key in _NAMESPACES:
        (new, *_) = wanted["UserConfig"].get(key) or [None]
        if new is not None:
            first, *others = config.get(key) or [new]
            config[key] = [_entity(first, new), *others]
    return json_lines({**before, "UserConfig": config}) + "\n"


def _entity(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    found = {**wanted, **before}
    if "Properties" in wanted:
        decided = {name: value for name, value in wanted["Properties"].items() if name in _DECIDED}
        found["Properties"] = {**wanted["Properties"], **before.get("Properties", {}), **decided}
    for key, value in wanted.items():
        if key == "Rules" and value:
            found[key] = value
        elif isinstance(value, list) and key != "Rules":
            found[key] = _entities(before.get(key) or [], value)
    return found


def _entities(before: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = {str(each["Name"]).lower(): dict(each) for each in before}
    for each in wanted:
        name = each["Name"].lower()
        found[name] = _entity(found[name], each) if name in found else dict(each)
    return list(found.values())
