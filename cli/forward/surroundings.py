"""What `busway forward` writes to: the hub, the journal, and a file for rejected records."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from cli.files import SyncedLines
from cli.forward.batch import Records
from cli.places import Place
from shared.assembly.journals import Journals, without_journal
from shared.assembly.outputs import open_outputs
from shared.ends.kind import Holds
from shared.ends.registry import kinds
from shared.errors import ConfigError, Problem
from shared.protocols import Output
from shared.resend.hub_sink import sink_of
from shared.tasks.files import Configuration
from shared.tasks.source import NAME


def surroundings(
    configuration: Configuration, topic: Place, hub: Place, task: str
) -> tuple[Output, Records, contextlib.AsyncExitStack]:
    """
    Open the output of *hub* and the journal, where the command is called *task*; raises ConfigError.

    The forwarder closes the output; the stack closes the rest afterwards.
    """
    for place, holds in ((topic, Holds.RECORDS), (hub, Holds.EVENTS)):
        if place.connection.end.holds is not holds:
            expected = " or ".join(kind.name for kind in kinds() if kind.holds is holds)
            raise ConfigError([Problem(str(place), f"is of kind {place.connection.kind}, expected {expected}")])
    configuration = without_journal(configuration, os.environ)
    aliases = {hub.alias}
    if configuration.journal is not None:
        if not re.fullmatch(NAME, task):
            hint = "choose another one with --task: letters, digits, _ and -"
            raise ConfigError([Problem(task, "cannot be a name in the journal", hint)])
        if task in {task.task for task in configuration.tasks} | {tap.task for tap in configuration.taps}:
            raise ConfigError([Problem(task, "is a task of the configuration", "choose another name with --task")])
        if configuration.journal.event_hub is not None:
            aliases.add(configuration.journal.event_hub.connection)
    # Of the hub, and of a journal in a hub.
    connections = {alias: configuration.connections[alias] for alias in aliases}
    outputs = open_outputs(replace(configuration, connections=connections), os.environ)
    journals = Journals(configuration, os.environ, sink=sink_of(configuration, outputs))
    records = Records(journals.named(task), task, f"{configuration.site(hub.alias)}/{hub.path}")
    output, rest = outputs.pop(hub.alias), contextlib.AsyncExitStack()
    rest.push_async_callback(journals.close)  # after the outputs
    for other in outputs.values():
        rest.push_async_callback(other.close)
    return output, records, rest


@contextlib.contextmanager
def rejects_file(file: Path) -> Iterator[Callable[[str], None]]:
    """Yield what appends a line to a file that nobody else may read; the first line creates it."""
    with contextlib.ExitStack() as opened:
        lines: list[SyncedLines] = []

        def append(line: str) -> None:
            if not lines:
                file.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                lines.append(SyncedLines(opened.enter_context(open(descriptor, "a", encoding="utf-8"))))  # noqa: PTH123 - a descriptor
            lines[0].append(line)

        yield append
