"""Config.json files of what tasks need, within the limits of Microsoft's emulators; each keeps what it had besides."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from busway_broker.commented_json import read_json
from busway_broker.config_file import load_config
from cli.topology.config_json import document_of, emulated
from cli.topology.needs import Needs
from shared.errors import ConfigError, Problem
from shared.printable import json_lines


def write_files(needs: Needs, folder: Path) -> Iterator[str]:
    """Write the file of each connection; yield what was written. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for key, needed in needs.namespaces.items():
            if not needed:
                continue
            namespace, lowered = emulated(needed)
            path = folder / f"{needs.aliases[key]}.json"
            document = document_of(namespace, for_emulator=True)
            kept = path.exists()
            if kept:
                load_config([path])
                before: Any = read_json(path.read_bytes(), dict)
                document = merged(before, json.loads(document))
            path.write_text(document, encoding="utf-8")
            yield f"{path}: {len(namespace.entities)} entities" + (", beside those that it had" if kept else "")
            yield from (f"  {line}, the most of the emulators" for line in lowered)
    except OSError as error:
        raise ConfigError([Problem(str(error.filename), f"cannot be written: {error.strerror}")]) from error


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
