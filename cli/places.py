"""Entities and tasks as the command line names them, like tables and log lines."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from azure.core.exceptions import AzureError

from cli.output import waits_for
from shared.ends.kind import Holds
from shared.ends.namespace import Namespace
from shared.errors import ConfigError, Problem, TargetUnavailable
from shared.resend.places import task_named
from shared.tasks.files import Configuration, load
from shared.tasks.models import Connection, TaskFile

# What DefaultAzureCredential says, which the clients wrap into errors of their own.
_NO_TOKEN = "failed to retrieve a token"  # noqa: S105 - no secret


@dataclass(frozen=True)
class Place:
    """An entity of a connection; its path is the services' own, such as `events/Subscriptions/application`."""

    alias: str
    connection: Connection
    path: str

    @property
    def is_hub(self) -> bool:
        """Whether it is an event hub."""
        return self.connection.end.has_hubs

    def __str__(self) -> str:
        return f"{self.alias}/{self.path}"


@contextlib.contextmanager
def open_place(text: str, folder: Path) -> Iterator[Place]:
    """Yield the entity that *text* names; raises ConfigError, and TargetUnavailable for an SDK's error in the block."""
    connections = load(folder).connections
    alias, _, path = text.partition("/")
    if alias not in connections or not path:
        expected = ", ".join(f"{each}/ENTITY" for each in connections)
        raise ConfigError([Problem(text, "is not an entity of a connection", f"expected {expected}")])
    waits_for(text)
    try:
        yield Place(alias, connections[alias], path)
    except Exception as error:
        # A command without an error does not import that of hubs, which takes 0.2 s.
        from azure.eventhub.exceptions import EventHubError

        if isinstance(error, (AzureError, EventHubError)):
            raise TargetUnavailable(f"{text}: {line_of(error)}") from error
        raise


def check_session(place: Place, session: str | None) -> None:
    """Raise ConfigError for a *session* of an entity that has none."""
    if session is not None and place.connection.end.holds is not Holds.MESSAGES:
        hint = "leave out --session; what --key names stays together" if place.is_hub else "leave out --session"
        raise ConfigError([Problem(str(place), "has no sessions", hint)])


def required_setting(setting: str | None, where: str) -> str:
    """Return the app *setting* of a connection; raises ConfigError for one that has only a secret."""
    if setting is None:
        hint = "give the connection a `setting` too; the secret stays what the app sends with"
        raise ConfigError([Problem(where, "has a secret and no setting, which this command needs", hint)])
    return setting


def lacks_token(error: BaseException) -> bool:
    """Return whether an error of an SDK says that there is no token of an identity."""
    return _NO_TOKEN in str(error)


def line_of(error: BaseException) -> str:
    """Return an error of an SDK in one line: without a token it lists every way that it has tried to get one."""
    if lacks_token(error):
        return "not authorized: there is no token (sign in with az login, or set a connection string)"
    first, *_ = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {first}"


def namespace_of(place: Place) -> Namespace:
    """Return the namespace of *place*, with what the app setting has of it; raises ConfigError."""
    setting = place.connection.setting
    end = place.connection.end
    if end.unreached is not None:
        raise ConfigError([Problem(str(place), *end.unreached)])
    if not end.is_namespace:
        # The local broker's namespace that replaces a broker of kind amqp.
        found = urlsplit(os.environ.get(setting or "", ""))
        if found.scheme != "amqp" or found.username is None:
            hint = "use a client of the broker; this command reaches only what `busway start` puts in its place"
            raise ConfigError([Problem(str(place), "is of kind amqp", hint)])
        key = f"SharedAccessKeyName={unquote(found.username)};SharedAccessKey={unquote(found.password or '')}"
        text = f"Endpoint=sb://{found.hostname}:{found.port};{key};UseDevelopmentEmulator=true"
        return Namespace(place.alias, text)
    return Namespace.of(required_setting(setting, str(place)), os.environ, [place.path] if place.is_hub else [])


def tasks_named(names: Iterable[str], configuration: Configuration, option: str = "") -> list[TaskFile]:
    """Return the tasks of these *names*, each once; raises ConfigError with every unknown one, as value of *option*."""
    found = {name: task_named(name, configuration) for name in names}
    expected = f"expected one of {', '.join(task.task for task in configuration.tasks)}"
    problems = [
        Problem(f"{option} {name}".strip(), "unknown task", expected) for name, task in found.items() if task is None
    ]
    if problems:
        raise ConfigError(problems)
    return list({task.task: task for task in found.values() if task is not None}.values())


def single_task(name: str, configuration: Configuration, option: str = "") -> TaskFile:
    """Return the task of this *name*; raises ConfigError."""
    (task,) = tasks_named([name], configuration, option)
    return task
