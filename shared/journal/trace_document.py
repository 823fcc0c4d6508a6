"""The search for one message in the journals of a container, and its hops as the dashboard's API returns them."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from shared.errors import TargetRefused
from shared.journal.hops import Hop
from shared.journal.record import Record
from shared.journal.search import Found, search
from shared.printable import printable
from shared.stores.blobs import Container, Listed, some_at_once

type Time = Annotated[str, Meta(description="ISO 8601, UTC, to the millisecond")]


class TraceStep(Struct, frozen=True):
    """One record of a journal."""

    time: Time
    after: Annotated[float, Meta(description="seconds since the source enqueued the message")]
    by: Annotated[str, Meta(description="task NAME or tap NAME")]
    outcome: Annotated[str, Meta(description="received, sent, filtered, looped, expired, rejected, retry or seen")]
    place: Annotated[str | None, Meta(description="SITE/ENTITY: the source, or the target")] = None
    reason: str | None = None
    notes: list[str] = []


class TraceHop(Struct, frozen=True):
    """The way of the message through one task."""

    task: str
    source: str
    partition: int
    sequence_number: int | None
    began: Annotated[Time, Meta(description="when the source enqueued the message, or it was first seen")]
    outcome: Annotated[str | None, Meta(description="the task's last outcome; null: it has recorded none")]
    steps: list[TraceStep]
    changes: Annotated[list[str], Meta(description="what editors changed")] = []


class MessageTrace(Struct, frozen=True):
    """What the journals have of one message."""

    message_id: str
    first_hour: str
    last_hour: str
    hops: list[TraceHop]
    problems: Annotated[list[str], Meta(description="parts of the journals that could not be read")] = []


def trace_document(message_id: str, hours: Sequence[str], way: Sequence[Hop], problems: Sequence[str]) -> MessageTrace:
    """Return the hops of a message; what a terminal would act on is escaped."""
    return MessageTrace(
        printable(message_id), hours[0], hours[-1], [_hop(hop) for hop in way], [printable(each) for each in problems]
    )


def _hop(hop: Hop) -> TraceHop:
    place = hop.place
    outcome = hop.outcome
    return TraceHop(
        printable(place.task),
        printable(f"{place.site}/{place.entity}"),
        place.partition,
        place.sequence_number,
        _time(hop.began),
        None if outcome is None else printable(str(outcome["outcome"])),
        [_step(record, hop.began) for record in hop.records],
        [printable(change) for change in hop.changes()],
    )


def _step(record: Record, began: int) -> TraceStep:
    name = f"tap {record.get('tap') or '(unnamed)'}" if record["observer"] == "tap" else f"task {record['task']}"
    place = record.get("target") if record.get("role") == "target" else f"{record['src_site']}/{record['src_entity']}"
    reason = record.get("reason")
    return TraceStep(
        _time(record["journal_time"]),
        round((record["journal_time"] - began) / 1_000_000, 3),
        printable(name),
        printable(str(record["outcome"])),
        None if place is None else printable(str(place)),
        None if reason is None else printable(str(reason)),
        [printable(note) for note in _notes(record)],
    )


def _notes(record: Record) -> Iterator[str]:
    if (record.get("attempt") or 1) > 1:
        yield f"delivery attempt {record['attempt']}"
    if record.get("given_up_by"):
        yield f"dead-lettered by {record['given_up_by']}"
    if (record.get("parts") or 1) > 1:
        yield f"for {record['parts']} parts or targets"
    if record.get("part") is not None:
        yield f"part or target {record['part']}"
    if record.get("edited"):
        yield "changed by an editor"
    if record.get("remembered"):
        yield "not sent again: the target had accepted it before"
    if record.get("handed_over"):
        yield "given to the host to send; its result is not on record"
    if record.get("tgt_seq") is not None:
        yield f"sequence number {record['tgt_seq']} there"


def _time(micros: int) -> str:
    try:
        return f"{datetime.fromtimestamp(micros // 1000 / 1000, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{micros} µs since 1970"  # outside the calendar


MOST_BYTES = 200 << 20
"""Bytes of journals that one search downloads at most."""
_TASKS = "task="


async def trace(container: Container, message_id: str, hours: Sequence[str]) -> Found:
    """
    Return what the journals of *hours* (2026-11-20T23) have of a message, all tasks of the container.

    Raises TargetUnavailable, and TargetRefused if the journals of these hours are too large for a search.
    """
    tasks = await container.folders(_TASKS)
    prefixes = [f"{task}date={hour[:10]}/hour={hour[11:]}/" for task in tasks for hour in hours]
    listings = await some_at_once([container.listed(prefix) for prefix in prefixes])
    blobs = [blob for listing in listings for blob in listing.blobs if blob.name.endswith(".jsonl.gz") and blob.size]
    size = sum(blob.size for blob in blobs)
    if size > MOST_BYTES:
        text = f"the journals of {hours[0]} to {hours[-1]} have {size >> 20:,} MB, expected at most {MOST_BYTES >> 20}"
        raise TargetRefused(f"{text}: search fewer hours, or run busway trace")
    # The file system of a worker has room, its memory is for batches.
    with tempfile.TemporaryDirectory(prefix="busway-trace-") as folder:
        files = [Path(folder, f"{number:05}.jsonl.gz") for number in range(len(blobs))]
        await some_at_once([_download(container, blob, file) for blob, file in zip(blobs, files, strict=True)])
        found = await asyncio.to_thread(search, files, message_id)
    names = {str(file): blob.name for blob, file in zip(blobs, files, strict=True)}
    return found._replace(problems=[_named(each, names) for each in found.problems])


async def _download(container: Container, blob: Listed, file: Path) -> None:
    content = await container.part(blob.name, 0, blob.size)
    await asyncio.to_thread(file.write_bytes, content)


def _named(problem: str, names: dict[str, str]) -> str:
    file, colon, text = problem.partition(":")
    return f"{names.get(file, file)}{colon}{text}"
