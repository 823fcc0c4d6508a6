"""What becomes an event of a journal in an event hub, here and in the host."""

import asyncio
import base64
import gzip
from typing import Any

import pytest

from host.outputs import bodies
from shared.errors import TargetRefused
from shared.journal.event_hub import EventHubSink, events
from shared.journal.lines import compressed, member
from shared.journal.record import Role
from shared.journal.recording import ReceivedLine
from shared.journal.sink import Stream

LINES = [ReceivedLine(src_seq=number, message_id=f"{number * 7919 % 10007}") for number in range(400)]


def texts(given: object) -> list[bytes]:
    """Return the text of every event that the host makes of what a binding was given."""
    kind, value = ("bytes", given) if isinstance(given, bytes) else ("json", str(given).replace("'", '"'))
    found = []
    for body in bodies("eventHub", kind, value).bodies:
        content = body if body.startswith(b"\x1f\x8b") else base64.b64decode(body)
        found.append(gzip.decompress(content))
    return found


def test_the_members_of_a_batch_are_one_event() -> None:
    given = events([member(LINES[:2], {"v": 1}), member(LINES[2:3], {"v": 1})])
    assert isinstance(given, bytes)
    (text,) = texts(given)
    assert len(text.splitlines()) == 3


def test_oversized_flush_is_split_between_records() -> None:
    whole = member(LINES, {"v": 1})
    given = events([whole, whole], limit=len(whole) // 3)
    found = texts(given)
    assert len(found) > 6
    assert b"".join(found) == gzip.decompress(whole) * 2
    assert all(text.endswith(b"}\n") for text in found)


def test_oversized_record_is_not_split() -> None:
    alone = compressed(b'{"v":1}\n')
    assert events([alone], limit=5) == alone


def test_write_outside_of_a_function_is_refused() -> None:
    sink = EventHubSink("vm")
    with pytest.raises(TargetRefused, match="journal copy: written outside of a function"):
        asyncio.run(sink.append(Stream("copy", Role.SOURCE), b"x"))


def test_concurrent_batches_do_not_mix() -> None:
    sink = EventHubSink("vm")

    async def batch(name: str) -> Any:
        with sink.collecting() as members:
            for _ in range(3):
                await sink.append(Stream(name, Role.SOURCE), name.encode())
                await asyncio.sleep(0)
        return members

    async def both() -> Any:
        return await asyncio.gather(batch("a"), batch("b"))

    assert asyncio.run(both()) == [[b"a"] * 3, [b"b"] * 3]
