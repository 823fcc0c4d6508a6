"""Edits that take longer than the locks of their messages, in virtual time (azure-functions-python-worker 1574)."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.clock import ManualClock
from shared.errors import LockLost
from shared.message.arrival import Arrival
from shared.message.message import Message
from shared.protocols import EditedTogether, Outcome
from tests.fakes import OutputThatAccepts
from tests.unit.line.virtual_line import LOCK, Line, token


class EditorThatTakes:
    """A batch editor that takes some seconds of the clock for each message."""

    name = "slow"
    joins = False
    clock: ManualClock

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:  # noqa: ARG002 - it asks nobody
        end = self.clock.monotonic() + self._seconds * len(messages)
        for _ in range(1_000):
            await asyncio.sleep(0)
            if self.clock.monotonic() >= end:
                break
        else:  # nobody else lets time pass
            self.clock.advance(end - self.clock.monotonic())
        return [(message,) for message in messages]

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        """Keep nothing."""


def line_with(editor: EditorThatTakes) -> Line[OutputThatAccepts]:
    line = Line(OutputThatAccepts(), editors=[editor])
    editor.clock = line.clock
    return line


def test_locks_are_renewed_while_editors_work() -> None:
    line = line_with(EditorThatTakes(2 * LOCK))
    assert line.deliver(1, 2) == {Outcome.SENT: 2}
    assert line.output.ids("orders") == ["m-1", "m-2"]
    assert {each for _, each in line.locks.renewed} == {token(1), token(2)}
    gaps = [late - early for early, late in zip([0, *line.locks.times], line.locks.times, strict=False)]
    assert len(gaps) >= 4
    assert max(gaps) <= LOCK / 2


def test_the_lock_of_a_session_is_renewed_while_editors_work() -> None:
    line = line_with(EditorThatTakes(2 * LOCK))
    assert line.deliver(1, 2, session=line.session, session_id="s") == {Outcome.SENT: 2}
    assert {each for _, each in line.locks.renewed} == {b"session"}


def test_edits_that_are_done_at_once_renew_nothing() -> None:
    line = line_with(EditorThatTakes(0))
    assert line.deliver(1, 2) == {Outcome.SENT: 2}
    assert line.locks.asked == []


def test_nothing_of_a_session_is_sent_that_was_lost_during_an_edit() -> None:
    line = line_with(EditorThatTakes(LOCK))
    line.at[LOCK / 2] = line.locks.lose
    with pytest.raises(LockLost):
        line.deliver(1, 2, session=line.session, session_id="s")
    assert line.output.ids("orders") == []
