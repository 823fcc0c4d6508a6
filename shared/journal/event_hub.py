"""
The journal in an event hub, through the output binding of the function that processes a batch.

The host sends the output of a binding when the function has returned, and settles the source after that. So an event
that cannot be sent fails the batch, and the records of what was received are sent together with the outcomes. This
journal has no records of a batch that fails or whose process crashes; docs/journal.md explains what that costs.
"""

import base64
import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from shared.errors import TargetRefused
from shared.journal.lines import compressed
from shared.journal.sink import Stream

# A publication may have 1 MB, or 256 KB in the basic tier; base64 turns three bytes into four.
EVENT_LIMIT = 180_000

_collected: ContextVar[list[bytes] | None] = ContextVar("collected", default=None)


class EventHubSink:
    """Collects the members of a batch for the output binding of its function."""

    def __init__(self, instance: str) -> None:
        """Write as *instance*."""
        self.instance = instance

    @contextmanager
    def collecting(self) -> Iterator[list[bytes]]:
        """Collect in the returned list what is appended within this context."""
        members: list[bytes] = []
        token = _collected.set(members)
        try:
            yield members
        finally:
            _collected.reset(token)

    async def append(self, stream: Stream, member: bytes) -> None:
        """Keep *member* until the function returns; raises TargetRefused outside a function."""
        members = _collected.get()
        if members is None:
            raise TargetRefused(f"journal {stream.task}: written outside of a function that has the output binding")
        members.append(member)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def events(members: Sequence[bytes], limit: int = EVENT_LIMIT) -> bytes | list[str]:
    """
    Return the value for the binding: the bytes of one event, or a list with the base64 of several.

    Shape:   an event is a sequence of gzip members. The worker passes several events as JSON, which has no bytes, and
             the host sends each text as an event.
    """
    groups: list[bytes] = []
    for member in members:
        for piece in _pieces(member, limit):
            if groups and len(groups[-1]) + len(piece) <= limit:
                groups[-1] += piece
            else:
                groups.append(piece)
    if len(groups) == 1:
        return groups[0]
    return [base64.b64encode(group).decode() for group in groups]


def _pieces(member: bytes, limit: int) -> Iterator[bytes]:
    """Yield *member*, split between records if it is too large; a single record is never split."""
    if len(member) <= limit:
        yield member
        return
    lines = gzip.decompress(member).splitlines(keepends=True)
    middle = len(lines) // 2
    if middle == 0:
        yield member
        return
    for half in (lines[:middle], lines[middle:]):
        yield from _pieces(compressed(b"".join(half)), limit)
