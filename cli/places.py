"""Entities as a person names them: CONNECTION/ENTITY, as tables and log lines do."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from azure.core.exceptions import AzureError
from azure.eventhub.exceptions import EventHubError

from cli.output import fail
from shared.azure.connections import setting_problem
from shared.config.files import load
from shared.config.models import Connection
from shared.errors import ConfigError, Problem

Folder = Annotated[Path, typer.Option("--config", envvar="BUSWAY_CONFIG", help="The folder with connections.yaml.")]


@dataclass(frozen=True)
class Place:
    """An entity of a connection; its path is that of the services, such as `events/Subscriptions/application`."""

    connection: Connection
    path: str

    @property
    def is_hub(self) -> bool:
        """Tell whether it is an event hub."""
        return self.connection.kind == "event-hubs"

    @property
    def connection_string(self) -> str:
        """The connection string in the app setting that the connection names; raises ConfigError if there is none."""
        setting = self.connection.key
        problem = setting_problem(setting, os.environ)
        if problem is None and setting not in os.environ:
            problem = Problem(setting, "the app setting is missing", "this command takes connection strings only")
        if problem is not None:
            raise ConfigError([problem])
        return os.environ[setting]


@contextlib.contextmanager
def place_named(text: str, folder: Path) -> Iterator[Place]:
    """Give what *text* names, and end the command with one line for each problem that comes up in using it."""
    try:
        yield _place(text, load(folder).connections)
    except ConfigError as error:
        fail(error.problems)
    except (AzureError, EventHubError) as error:
        fail([f"{text}: {type(error).__name__}: {error}"])


def _place(text: str, connections: Mapping[str, Connection]) -> Place:
    alias, _, path = text.partition("/")
    if alias not in connections or not path:
        expected = ", ".join(f"{each}/ENTITY" for each in connections)
        raise ConfigError([Problem(text, "is no entity of a connection", f"expected {expected}")])
    return Place(connections[alias], path)
