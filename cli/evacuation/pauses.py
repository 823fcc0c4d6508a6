"""Sources that `busway pause --close-source` has closed: open while their messages are moved, and closed again then."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cli.output import print_problems
from cli.pause.entity import PAUSED_FORMS, Entity
from cli.pause.tasks import az_commands
from shared.assembly.status import open_store, store_problem
from shared.errors import TargetRefused, TargetUnavailable
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile


class Pause(NamedTuple):
    """A paused task, and the status that its source had before the pause; None if the pause has left it open."""

    file: TaskFile
    before: str | None

    def explains(self, status: str) -> bool:
        """Return whether the *status* of the source is that of the pause."""
        return self.before is not None and PAUSED_FORMS.get(self.before) == status

    @contextlib.contextmanager
    def lifted(self, configuration: Configuration) -> Iterator[None]:
        """Give the source the status that it had before, and afterwards that of the pause."""
        if self.before not in PAUSED_FORMS:
            yield
            return
        source = self.file.source
        entity = Entity(source, configuration.connections[source.connection])
        entity.change(PAUSED_FORMS[self.before], self.before)
        try:
            yield
        finally:
            entity.change(self.before, PAUSED_FORMS[self.before])

    @property
    def advice(self) -> str:
        """Say what to do so that the app holds none of the messages."""
        (command,) = az_commands([self.file], is_pause=True)
        name = self.file.task
        return f"the task {name} is paused, and its app may hold a batch of each lane: to switch it off, run {command}"


type Pauses = Mapping[tuple[str, str], Pause]
"""By the site and the entity of the source, in lower case."""


async def pauses_of(configuration: Configuration, settings: Mapping[str, str]) -> Pauses:
    """Return the tasks that are paused, none if that is not known."""
    if store_problem(configuration, settings) is not None:
        return {}
    store = open_store(configuration, settings)
    found: dict[tuple[str, str], Pause] = {}
    try:
        for file in configuration.tasks:
            control = None if file.source.hub is not None else await store.control(file.task)
            if control is not None and control.paused:
                key = (configuration.site(file.source.connection), file.source.entity.lower())
                found[key] = Pause(file, control.before if control.closed else None)
    except (TargetUnavailable, TargetRefused) as error:
        print_problems([f"whether a task is paused is not known: {error}"])
    finally:
        await store.close()
    return found
