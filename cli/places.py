"""Entities as the command line names them, CONNECTION/ENTITY, like tables and log lines."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from azure.core.exceptions import AzureError
from azure.eventhub.exceptions import EventHubError

from cli.output import fail
from shared.azure.connections import setting_problem
from shared.config.files import load
from shared.config.models import Connection
from shared.errors import ConfigError, Problem


@dataclass(frozen=True)
class Place:
    """An entity of a connection; its path is the services' own, such as `events/Subscriptions/application`."""

    connection: Connection
    path: str

    @property
    def is_hub(self) -> bool:
        """Whether it is an event hub."""
        return self.connection.kind == "event-hubs"

    @property
    def connection_string(self) -> str:
        """The connection string in the app setting that the connection names; raises ConfigError if it is missing."""
        setting = self.connection.key
        problem = setting_problem(setting, os.environ)
        if problem is None and setting not in os.environ:
            problem = Problem(setting, "the app setting is missing", "this command needs a connection string")
        if problem is not None:
            raise ConfigError([problem])
        return os.environ[setting]


@contextlib.contextmanager
def open_place(text: str, folder: Path) -> Iterator[Place]:
    """Yield the entity that *text* names; a problem with it, here or in the block, ends the command with one line."""
    try:
        yield _parse(text, load(folder).connections)
    except ConfigError as error:
        fail(error.problems)
    except (AzureError, EventHubError) as error:
        fail([f"{text}: {type(error).__name__}: {error}"])


def _parse(text: str, connections: Mapping[str, Connection]) -> Place:
    alias, _, path = text.partition("/")
    if alias not in connections or not path:
        expected = ", ".join(f"{each}/ENTITY" for each in connections)
        raise ConfigError([Problem(text, "is not an entity of a connection", f"expected {expected}")])
    return Place(connections[alias], path)
