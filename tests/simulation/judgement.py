"""
The nightly job's judgement of the journals of many histories at once: is it clean exactly when nothing was lost?

Sites, tasks and instances get a name of their own in each history, so that one query judges thousands of histories.
"""

import asyncio
import gzip
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.assembly.journals import actions_of
from shared.clock import SystemClock
from shared.journal.record import Role
from shared.journal.tap import Tap
from shared.message.arrival import Origin
from shared.message.message import Message
from tests.jobs.twin import connect, judge
from tests.memory_sink import MemorySink
from tests.simulation.site import BEGIN
from tests.simulation.topology import Input
from tests.simulation.world import World

_NAMES = re.compile(rb'"(west|east|north)\b')
_OWN = re.compile(rb'"(task|instance)":"(?!h\d)')
_END = BEGIN + timedelta(days=2)
SHORT_SECONDS = 2 * 3600.0
"""The virtual time of the histories that the job itself may judge: each more hour of a window costs it seconds."""
# These say that something is to be looked at; none may be there without a reason.
ALARMS = frozenset({"missing", "orphan", "altered", "undecided", "in_flight", "looped"})

Verdicts = dict[int, list[tuple[str, str]]]
"""By the numbers of histories: message ids and their verdicts."""


@dataclass(frozen=True)
class Evidence:
    """The journals of one history, and what the job has to say about them."""

    number: int
    lines: bytes
    lost: frozenset[str]
    """The names of messages that were lost on purpose."""
    unsure: frozenset[str]
    """Those of messages of which the job may say anything."""
    repeated: frozenset[str]
    """Those of messages with several copies somewhere."""
    duplicated: frozenset[str] = frozenset()
    """Those of messages of which a tap has seen several copies."""


def evidence(
    world: World,
    number: int,
    lost: frozenset[str],
    unsure: frozenset[str],
    repeated: frozenset[str],
    *,
    duplicated: frozenset[str] = frozenset(),
    source_taps: bool,
    target_taps: bool,
) -> Evidence:
    """Return the journals of *world*, with those of taps that have seen what its sources and targets held."""
    sink = MemorySink("tap")
    if source_taps:
        for source, contents in world.seen.items():
            _see(world, sink, source, Role.SOURCE, (source.site, source.entity), contents)
    if target_taps:
        for source in world.topology.inputs:
            # What comes from a hub is identified with its partition, which its copies do not name.
            is_hub = source.entity in world.sites[source.site].namespace.hubs
            for site, path in () if is_hub else source.targets:
                _see(world, sink, source, Role.TARGET, (site, path), _at(world, source, site, path))
    seen = (gzip.decompress(member) for members in sink.members.values() for member in members)
    text = b"".join((*world.journal, *seen))
    prefix = b"h%d-" % number
    text = _OWN.sub(rb'"\1":"' + prefix, _NAMES.sub(rb'"' + prefix + rb"\1", text))
    return Evidence(number, text, lost, unsure, repeated, duplicated)


def judged(histories: Sequence[Evidence]) -> Verdicts:
    """Return the verdicts of each history."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "a/b/c/d/e.jsonl.gz"
        file.parent.mkdir(parents=True)
        file.write_bytes(gzip.compress(b"".join(history.lines for history in histories), 1))
        database = connect()
        judge(database, raw=Path(name), end=_END)
        rows = database.execute("select task, message_id, verdict from verdicts").fetchall()
    found: Verdicts = {history.number: [] for history in histories}
    for task, message_id, verdict in rows:
        found[int(task.removeprefix("h").partition("-")[0])].append((str(message_id), verdict))
    return found


def disagreements(one: Evidence, verdicts: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield what the job says wrongly about a history whose oracles found nothing but what was *lost* on purpose."""
    missing = {message_id for message_id, verdict in verdicts if verdict == "missing"}
    for message_id in sorted(one.lost - missing):
        yield f"the night does not report that {message_id} is missing"
    for message_id in sorted(
        one.duplicated - {message_id for message_id, verdict in verdicts if verdict == "duplicated"}
    ):
        yield f"the night does not report that {message_id} is duplicated"
    for message_id, verdict in sorted(verdicts):
        if verdict in ALARMS and message_id not in one.lost | one.unsure:
            yield f"the night says that {message_id} is {verdict}"
        elif verdict == "duplicated" and message_id not in one.repeated | one.unsure:
            yield f"the night says that {message_id} is duplicated, and there is one copy"


def _see(  # noqa: PLR0917 - what, by whom and where
    world: World, sink: MemorySink, source: Input, role: Role, place: tuple[str, str], contents: Sequence[bytes]
) -> None:
    """Let a tap see *contents* at a place, which is a site and a path."""
    site, path = place
    file = next(task for task in world.tasks if task.task == source.task)
    watched = Origin(source.site, file.source.entity)
    clock = _ClockOfTap()
    is_hub = path in world.sites[site].namespace.hubs
    tap = Tap(
        f"tap of {site}/{path}",
        source.task,
        role,
        watched=watched,
        is_hub_watched=file.source.hub is not None,
        place=watched if role is Role.SOURCE else Origin(site, path),
        target=f"{site}/{path.partition('/')[0]}",
        is_hub=is_hub,
        has_same_numbers=role is Role.SOURCE,
        sink=sink,
        actions=actions_of(file),
        clock=clock,
    )
    for partition, batch in _by_partition(world, site, path, contents):
        for content in batch:
            enqueued = Message.received(content, watched).arrival.enqueued_time or 0
            clock.at = datetime.fromtimestamp(enqueued / 1000, UTC)
            _finish(tap.see([content], partition))


class _ClockOfTap(SystemClock):
    """Says when the message arrived that a tap sees."""

    at = BEGIN

    def now(self) -> datetime:
        """Return that time."""
        return self.at


def _by_partition(
    world: World, site: str, path: str, contents: Sequence[bytes]
) -> Iterator[tuple[str | None, Sequence[bytes]]]:
    hub = world.sites[site].namespace.hubs.get(path)
    if hub is None:
        if contents:
            yield None, contents
        return
    wanted = set(contents)
    for partition in hub.partitions:
        batch = [each for each in (event.encode() for event in partition.events) if each in wanted]
        if batch:
            yield partition.partition_id, batch


def _at(world: World, source: Input, site: str, path: str) -> list[bytes]:
    """Return what has arrived at a place from *source*."""
    from tests.simulation.oracles import stored  # noqa: PLC0415 - they import each other

    names = {name for draft in world.accepted if draft.input is source for name in draft.names}
    is_own = site == source.site
    return [arrival.content for arrival in stored(world, site, path) if arrival.name in names and not is_own]


def _finish(step: object) -> None:
    """Run a coroutine that waits for nothing."""
    assert asyncio.iscoroutine(step)
    try:
        step.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
