"""The work on messages that are locked individually, and the choice of work for a receiver."""

from collections.abc import Callable, Generator, Sequence
from typing import Any

from busway_clients.sessions.effects import Effect, HeldLease, Receive, Wait
from busway_clients.sessions.entries import message_partition, session_partition
from busway_clients.sessions.plan import Worker
from busway_clients.sessions.received import Arrival
from busway_clients.sessions.session_work import Ending, SessionWork


class MessageWork:
    """
    The steps of a lane whose messages are locked individually; *held_lease* is that of the current message.

    A message that cannot be processed now is set aside, with its lock renewed, and tried again later. It does not delay
    others until a whole batch is set aside.
    """

    def __init__(self, new_worker: Callable[[], Worker]) -> None:
        self._new_worker = new_worker
        self._work: SessionWork | None = None

    @property
    def held_lease(self) -> HeldLease | None:
        """The current lease, None without one."""
        return None if self._work is None else self._work.held_lease

    def steps(self) -> Generator[Effect, Any, Ending]:
        """Yield effects until no message comes; raises as SessionWork.steps does."""
        worker = self._new_worker()
        settings = worker.settings
        aside: list[Arrival] = []
        due = 0.0
        while not worker.is_stopping():
            room = settings.batch - len(aside)
            received: Sequence[Arrival] = []
            if room:
                received = yield Receive(room)
            else:
                yield Wait(settings.poll_seconds)
            if not received and not aside:
                return Ending.EMPTY
            next_ones = list(received)
            if worker.monotonic() >= due:
                next_ones, aside = [*aside, *received], []
                due = worker.monotonic() + settings.poll_seconds
            for arrival in next_ones:
                partition = message_partition(arrival.session_id, arrival.message_id)
                self._work = SessionWork(partition, self._new_worker(), [arrival])
                ending = yield from self._work.steps()
                if ending in (Ending.STOPPED, Ending.LOCK_LOST):
                    return ending
                if ending is Ending.BUSY:
                    aside.append(arrival)
        return Ending.STOPPED


def work_for(session_id: str | None, new_worker: Callable[[], Worker]) -> SessionWork | MessageWork:
    """Return the work of a lane on a receiver, which has accepted *session_id* if the entity has sessions."""
    worker = new_worker()
    if worker.settings.lock == "message":
        return MessageWork(new_worker)
    return SessionWork(session_partition(str(session_id)), worker)
