"""The evacuation of the entities of a namespace, and what is printed of it."""

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer

from cli.evacuation.evacuation import Evacuation, EvacuationResult
from cli.evacuation.gate import DISTRIBUTION_SECONDS, Gate
from cli.evacuation.pairs import Pair
from cli.evacuation.survey import Estimate, Share, Survey, survey
from cli.evacuation.verdicts import MOVED, UNCLEAR, verdicts_path, write_verdicts
from cli.letters.report import print_end, print_rest
from cli.output import print_counts, waits_for
from cli.signals import stopped_by_signals
from cli.topology.sites import open_client
from shared.assembly.outputs import closing_outputs
from shared.errors import BuswayError
from shared.printable import printable
from shared.resend.options import Options
from shared.resend.places import Destination
from shared.tasks.files import Configuration

FOLDER = Path("build/evacuation")


async def show(pairs: Sequence[Pair], configuration: Configuration, rate: float | None) -> bool:
    """Print what would be moved, and what that takes; return whether every pair can be."""
    is_possible, estimate = True, Estimate()
    for pair in pairs:
        waits_for(str(pair.source))
        start = time.monotonic()
        found = await _surveyed(pair)
        typer.echo(str(pair))
        _print_stays(pair.problems)
        is_possible = is_possible and not pair.problems
        if found is None:
            continue
        estimate.add(found, time.monotonic() - start)
        for line in _lines(found):
            typer.echo(line)
        _print_stays(pair.unseen)
        for text in _advice(pair, found, configuration):
            typer.echo(f"  {text}")
    if estimate.messages:
        typer.echo(estimate.text(rate))
    return is_possible


async def _surveyed(pair: Pair) -> Survey | None:
    """Return what the source has; why it cannot be read is a problem of *pair*, and keeps no other from being moved."""
    try:
        return await survey(pair, os.environ)
    except BuswayError as error:
        pair.problems.append(str(error))
        return None


def _lines(found: Survey) -> Iterator[str]:
    counts = Counter({share: len(each) for share, each in found.shares.items()})
    counts[Share.SCHEDULED] += len(found.due)
    for share, count in counts.items():
        if count:
            yield f"{count:>8,} {share}"
    if found.due:
        due = datetime.fromtimestamp(max(found.due.values()) / 1000, UTC)
        yield f"{'':>8} {len(found.due):,} of the scheduled are due until {due:%H:%M:%S} UTC: they are moved then"
    if found.sessions:
        yield f"{'':>8} in {len(found.sessions):,} sessions"
    for reason, count in Counter(found.left.values()).items():
        yield f"{count:>8,} left: {printable(reason)}"
    if not (counts.total() or found.left):
        yield f"{'':>8} no messages"


def _advice(pair: Pair, found: Survey, configuration: Configuration) -> Iterator[str]:
    placed = bool(found.shares[Share.DEAD] or found.shares[Share.DEFERRED])
    if placed and not pair.requires_session:
        yield f"no application may receive from {pair.target} until dead letters and deferred messages are there"
    if found.shares[Share.DEFERRED]:
        yield "deferred messages get other sequence numbers; the file of verdicts has both"
    if pair.is_gated and found.count:
        yield f"the rules of all subscriptions of {pair.destination} are extended meanwhile"
    if pair.pause is not None:
        yield pair.pause.advice
        return
    for task in configuration.tasks:
        source = configuration.site(task.source.connection), task.source.entity.lower()
        if source == (pair.source.site, pair.source.entity.lower()):
            yield f"the task {task.task} receives from {pair.source} too: stop the app, or it takes some of them"


async def evacuate(pairs: Sequence[Pair], configuration: Configuration, options: Options) -> bool:
    """Move the messages, and print what happened; return whether nothing is left."""
    results: list[bool] = []
    async with closing_outputs(configuration, os.environ) as outputs:
        groups: dict[Destination | None, list[Pair]] = {}
        for pair in pairs:  # the subscriptions of a topic together
            groups.setdefault(pair.destination if pair.is_gated and not pair.problems else None, []).append(pair)
        for topic, some in groups.items():
            # Without anything to move, no rule is touched.
            found = {pair.source: await _surveyed(pair) for pair in some if topic is not None}
            moves = False
            for pair in some:
                seen = found.get(pair.source)
                moves |= seen is not None and bool(seen.count or seen.due)
                # It may have states of sessions.
                moves |= pair.requires_session and not pair.forwards and not pair.problems
            is_idle = topic is not None and not moves
            arrived: list[bool] = []
            async with _gate(topic, configuration, arrived, closes=not is_idle):
                for pair in some:
                    seen = found.get(pair.source)
                    if pair.problems or (is_idle and seen is not None):
                        typer.echo(str(pair))
                        _print_stays(pair.problems)
                        if seen is not None and not pair.problems:
                            _print_rest(0, seen.left)
                            _print_stays(pair.unseen)
                        results.append(seen is not None and not (pair.problems or seen.left or pair.unseen))
                        continue
                    evacuation = Evacuation(pair, configuration, os.environ, options, FOLDER)
                    lifted = contextlib.nullcontext() if pair.pause is None else pair.pause.lifted(configuration)
                    arrived.append(False)
                    with lifted, stopped_by_signals(evacuation.stop):
                        async with evacuation.opened():
                            result = await evacuation.run(outputs)
                            results.append(result.is_complete and not pair.unseen)
                            arrived[-1] = await _report(pair, evacuation, result)
                    if result.is_stopped:
                        return False
    return all(results)


def _print_rest(gone: int, left: Mapping[tuple[Share, str], str]) -> None:
    """Print what is left; the numbers of dead letters are those of another entity."""
    print_rest(gone, ((key, reason) for (share, key), reason in left.items() if share is not Share.DEAD))
    dead = ((key, reason) for (share, key), reason in left.items() if share is Share.DEAD)
    print_rest(0, dead, " of the dead-letter queue")


def _print_stays(texts: Iterable[str]) -> None:
    for text in texts:
        typer.echo(f"  stays: {printable(text)}")


@contextlib.asynccontextmanager
async def _gate(
    topic: Destination | None, configuration: Configuration, arrived: Sequence[bool], *, closes: bool
) -> AsyncIterator[None]:
    """Close the gate of a *topic*; restore its rules at the end, when all copies have surely *arrived*."""
    if topic is None:
        yield
        return
    with open_client(topic.alias, configuration.connections[topic.alias]) as client:
        gate = Gate(topic, client, FOLDER)
        # What an interrupted run has sent may not be distributed yet, also to subscriptions that this run leaves out.
        was_interrupted = gate.is_closed
        try:
            if closes:
                gate.close()
            yield
        finally:
            if was_interrupted or not all(arrived):
                seconds = DISTRIBUTION_SECONDS
                typer.echo(f"{topic}: waits {seconds:.0f} s for its subscriptions, before their rules are restored")
                await asyncio.sleep(seconds)
            gate.open()


async def _report(pair: Pair, evacuation: Evacuation, result: EvacuationResult) -> bool:
    """Print the result; return whether all copies are at the target."""
    typer.echo(str(pair))
    print_counts(
        *((result.moved[share], f"moved: {share}") for share in Share),
        (result.states, "session states moved"),
    )
    _print_rest(result.gone, result.left)
    _print_stays(pair.unseen)
    if pair.pause is not None and result.left:
        typer.echo(f"  {pair.pause.advice}")
    for session_id, reason in result.left_states.items():
        typer.echo(f"{'':>8} the state of session {printable(session_id)} stays: {printable(reason)}")
    is_there = False
    try:
        path = verdicts_path(FOLDER, pair)
        counts = await write_verdicts(path, pair, evacuation.ledgers, result.left, os.environ)
        moved = counts[MOVED]
        is_there = moved == counts["there"] and not counts[UNCLEAR]
        if counts:
            typer.echo(f"verdicts: {path} ({moved:,} moved, {counts['there']:,} of them still at the target)")
        if result.is_complete:
            await evacuation.note_finished()
    except BuswayError as error:
        typer.echo(f"the target cannot be read for the verdicts: {printable(str(error))}", err=True)
    print_end(result.error, is_stopped=result.is_stopped)
    return is_there
