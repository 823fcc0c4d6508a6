"""The run of `busway forward`: what it needs of the configuration, and what it prints."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from cli.forward.batch import Records
from cli.forward.forwarder import Forwarder, Request
from cli.stack import run_until_signalled
from cli.synced_lines import SyncedLines
from shared.config.files import Configuration, load
from shared.config.journal_assembly import Journals, without_journal
from shared.config.models import NAME
from shared.config.outputs import open_outputs
from shared.errors import ConfigError, Problem
from shared.protocols import Output
from shared.resend.hub_sink import sink_of


def forward_and_print(request: Request, folder: Path) -> None:
    """Forward records until a signal or until none comes, and print how many; raises ConfigError, typer.Exit."""
    for place, kind in ((request.topic, "kafka"), (request.hub, "event-hubs")):
        if place.connection.kind != kind:
            raise ConfigError([Problem(str(place), f"is of kind {place.connection.kind}, expected {kind}")])
    configuration = without_journal(load(folder), os.environ)
    _check_task(request.task, configuration)
    outputs = open_outputs(_needed(configuration, request.hub.alias), os.environ)
    journals = Journals(configuration, os.environ, sink=sink_of(configuration, outputs))
    target = f"{configuration.site(request.hub.alias)}/{request.hub.path}"
    records = Records(journals.named(request.task), request.task, target)
    site, output = configuration.site(request.topic.alias), outputs.pop(request.hub.alias)
    with _rejects(request.rejects) as rejects:
        forwarding = Forwarder(request, site, output, rejects, records)

        def stop() -> None:
            seconds = request.stop_within
            typer.echo(
                f"stops after the batch in hand, within {seconds:g} s; a second signal ends it at once", err=True
            )
            forwarding.stop(seconds)

        try:
            run_until_signalled(_run(forwarding, [*outputs.values(), journals]), stop)
        finally:
            rejected = f", {forwarding.rejected} rejected into {request.rejects}" if forwarding.rejected else ""
            stopped = "; stopped, nothing in hand" if forwarding.is_stopped else ""
            typer.echo(f"{forwarding.sent} forwarded from {request.topic} to {request.hub}{rejected}{stopped}")


def _check_task(task: str, configuration: Configuration) -> None:
    if configuration.journal is None:
        return
    if not re.fullmatch(NAME, task):
        hint = "choose another one with --task: letters, digits, _ and -"
        raise ConfigError([Problem(task, "cannot be a name in the journal", hint)])
    if task in {each.task for each in configuration.tasks} | {each.task for each in configuration.taps}:
        raise ConfigError([Problem(task, "is a task of the configuration", "choose another name with --task")])


def _needed(configuration: Configuration, hub: str) -> Configuration:
    """Return the configuration with the connections that are sent to: of the hub, and of a journal in a hub."""
    journal = configuration.journal.event_hub if configuration.journal is not None else None
    aliases = {hub} if journal is None else {hub, journal.connection}
    return replace(configuration, connections={each: configuration.connections[each] for each in aliases})


async def _run(forwarding: Forwarder, opened: Sequence[Output | Journals]) -> None:
    try:
        await forwarding.run()
    finally:
        for each in opened:
            await each.close()


@contextlib.contextmanager
def _rejects(file: Path) -> Iterator[Callable[[str], None]]:
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
