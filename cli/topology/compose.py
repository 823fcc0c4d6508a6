"""Generated Config.json files, which keep what they had besides, and a compose file for Microsoft's emulators."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from busway_broker.commented_json import read_json
from busway_broker.config_file import load_config
from cli.topology.config_json import document_of, emulated
from cli.topology.model import Kind
from cli.topology.needs import Needs
from shared.errors import ConfigError, Problem
from shared.printable import json_lines
from shared.tasks.files import Configuration

SERVICE_BUS_IMAGE = "mcr.microsoft.com/azure-messaging/servicebus-emulator:2.0.1"
SQL_IMAGE = "mcr.microsoft.com/mssql/server:2022-CU14-ubuntu-22.04"
EVENT_HUBS_IMAGE = "mcr.microsoft.com/azure-messaging/eventhubs-emulator:2.1.0"
STORAGE_IMAGE = "mcr.microsoft.com/azure-storage/azurite:3.35.0"

FIRST_PORT, FIRST_ADMINISTRATION_PORT = 5672, 5300

_HEAD = """\
# Microsoft's emulators with the entities of the tasks, one for each namespace.
# `busway plan --config-json` has written this file and those beside it.
#
#   export ACCEPT_EULA=Y                     # after reading the emulators' licences
#   export MSSQL_SA_PASSWORD=...             # your choice, following SQL Server's password rules
#   docker compose --file compose.yaml up --detach
#
# The app settings (the emulators check no keys; SAS_KEY_VALUE is the placeholder of their documentation):
"""
_EULA = "      ACCEPT_EULA: ${ACCEPT_EULA:?set it to Y to accept the licences of the emulators}\n"
_SQL_SERVER = "      MSSQL_SA_PASSWORD: ${MSSQL_SA_PASSWORD:?set a password for SQL Server}\n"


class Emulator(NamedTuple):
    """A namespace: the alias of its connection, the app setting, and whether it is of Event Hubs."""

    alias: str
    setting: str
    is_hubs: bool


def write_emulators(configuration: Configuration, needs: Needs, folder: Path) -> Iterator[str]:
    """Write a Config.json for each connection and the compose file; yield what was written. Raises ConfigError."""
    emulators: list[Emulator] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for key, needed in needs.namespaces.items():
            if not needed:
                continue
            alias = needs.aliases[key]
            namespace, lowered = emulated(needed)
            path = folder / f"{alias}.json"
            document = document_of(namespace, for_emulator=True)
            kept = path.exists()
            if kept:
                load_config([path])
                before: Any = read_json(path.read_bytes(), dict)
                document = merged(before, json.loads(document))
            path.write_text(document, encoding="utf-8")
            yield f"{path}: {len(namespace.entities)} entities" + (", beside those that it had" if kept else "")
            yield from (f"  {line}, the most of the emulators" for line in lowered)
            is_hubs = any(entity.name.kind is Kind.HUB for entity in namespace.sorted())
            emulators.append(Emulator(alias, configuration.connections[alias].setting or alias.upper(), is_hubs))
        (folder / "compose.yaml").write_text(compose_of(emulators), encoding="utf-8")
        yield f"{folder / 'compose.yaml'}: {len(emulators)} emulators; its first lines say how to start them"
    except OSError as error:
        raise ConfigError([Problem(str(error.filename), f"cannot be written: {error.strerror}")]) from error


def compose_of(emulators: Sequence[Emulator]) -> str:
    """Return the compose file for the files `ALIAS.json` in its folder."""
    settings = "".join(f'#   export {name}="{value}"\n' for name, value in settings_of(emulators).items())
    services = "".join(_service(emulator, number) for number, emulator in enumerate(emulators))
    if any(emulator.is_hubs for emulator in emulators):
        services += f"  azurite:\n    image: {STORAGE_IMAGE}\n"
    return f"{_HEAD}{settings}\nname: busway-emulators\n\nservices:\n{services}"


def settings_of(emulators: Sequence[Emulator]) -> Mapping[str, str]:
    """Return the app settings with which the app uses the emulators."""
    key = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
    return {
        emulator.setting: f"Endpoint=sb://localhost:{FIRST_PORT + number};{key}"
        for number, emulator in enumerate(emulators)
    }


def _service(emulator: Emulator, number: int) -> str:
    alias, port = emulator.alias, FIRST_PORT + number
    if emulator.is_hubs:
        return (
            f"  {alias}:\n    image: {EVENT_HUBS_IMAGE}\n"
            f'    ports: ["127.0.0.1:{port}:5672"]\n'
            f'    volumes: ["./{alias}.json:/Eventhubs_Emulator/ConfigFiles/Config.json:ro"]\n'
            f"    environment:\n{_EULA}      BLOB_SERVER: azurite\n      METADATA_SERVER: azurite\n"
            f"    depends_on: [azurite]\n\n"
        )
    administration = FIRST_ADMINISTRATION_PORT + number
    return (
        f"  {alias}:\n    image: {SERVICE_BUS_IMAGE}\n"
        f'    ports: ["127.0.0.1:{port}:5672", "127.0.0.1:{administration}:5300"]\n'
        f'    volumes: ["./{alias}.json:/ServiceBus_Emulator/ConfigFiles/Config.json:ro"]\n'
        f"    environment:\n{_EULA}{_SQL_SERVER}      SQL_SERVER: {alias}-sql\n"
        f"    depends_on: [{alias}-sql]\n\n"
        # It is not documented that two emulators can share a server.
        f"  {alias}-sql:\n    image: {SQL_IMAGE}\n    environment:\n{_EULA}{_SQL_SERVER}\n"
    )


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
