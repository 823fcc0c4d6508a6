"""The search for one message in the journals of a container, as `busway trace` does it in files."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from shared.errors import TargetRefused
from shared.journal.search import Found, search
from shared.journal.sink import Container
from shared.stores.blobs import Listed, some_at_once

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
