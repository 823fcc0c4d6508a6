"""Messages that are locked one by one, each in a visit of its own; and which of both a receiver is for."""

from collections.abc import Callable, Generator, Sequence
from typing import Any

from busway_clients.sessions.arrivals import Arrival
from busway_clients.sessions.effects import Effect, Hold, Receive, Wait
from busway_clients.sessions.entries import message_partition, session_partition
from busway_clients.sessions.plan import Worker
from busway_clients.sessions.visit import Ending, Visit


class Messages:
    """
    The steps of a lane with a receiver whose messages are locked by themselves; *hold* is of the visit at hand.

    A message that cannot be processed now is set aside, its lock kept, and visited again later: it keeps none of the
    others waiting, until a whole batch is set aside.
    """

    def __init__(self, new_worker: Callable[[], Worker]) -> None:
        self._new_worker = new_worker
        self._visit: Visit | None = None

    @property
    def hold(self) -> Hold | None:
        """The lease that is held, None while there is none."""
        return None if self._visit is None else self._visit.hold

    def steps(self) -> Generator[Effect, Any, Ending]:
        """Yield effects until nothing comes; raises as Visit.steps does."""
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
                self._visit = Visit(partition, self._new_worker(), [arrival])
                ending = yield from self._visit.steps()
                if ending in (Ending.STOPPED, Ending.LOCK_LOST):
                    return ending
                if ending is Ending.BUSY:
                    aside.append(arrival)
        return Ending.STOPPED


def visit_of(session_id: str | None, new_worker: Callable[[], Worker]) -> Visit | Messages:
    """Return what a lane does with a receiver, which has the session *session_id* if there are sessions."""
    worker = new_worker()
    if worker.settings.lock == "message":
        return Messages(new_worker)
    return Visit(session_partition(str(session_id)), worker)
