# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""The work on messages that are locked individually."""

from collections.abc import Callable, Sequence

from busway_clients._sync.sessions.lane import Lane
from busway_clients._sync.sessions.session_work import SessionWork
from busway_clients.sessions.arrival import Arrival
from busway_clients.sessions.entries import message_partition
from busway_clients.sessions.leases import HeldLease
from busway_clients.sessions.plan import Ending, Worker


class MessageWork:
    """
    The work of a lane whose messages are locked individually; *held_lease* is that of the current message.

    A message that cannot be processed now is set aside, with its lock renewed, and tried again later. It does not delay
    others until a whole batch is set aside.
    """

    def __init__(self, new_worker: Callable[[], Worker], lane: Lane) -> None:
        self._lane = lane
        self._new_worker = new_worker
        self._work: SessionWork | None = None

    @property
    def held_lease(self) -> HeldLease | None:
        """The current lease, None without one."""
        return None if self._work is None else self._work.held_lease

    def run(self) -> Ending:
        """Work until no message comes; raises as SessionWork.run does."""
        worker = self._new_worker()
        settings = worker.settings
        aside: list[Arrival] = []
        due = 0.0
        while not worker.is_stopping():
            room = settings.batch - len(aside)
            received: Sequence[Arrival] = []
            if room:
                received = self._lane.receive(room)
            else:
                self._lane.wait(settings.poll_seconds)
            if not received and not aside:
                return Ending.EMPTY
            next_ones = list(received)
            if worker.monotonic() >= due:
                next_ones, aside = [*aside, *received], []
                due = worker.monotonic() + settings.poll_seconds
            for arrival in next_ones:
                partition = message_partition(arrival.session_id, arrival.message_id)
                self._work = SessionWork(partition, self._new_worker(), self._lane, [arrival])
                ending = self._work.run()
                if ending in (Ending.STOPPED, Ending.LOCK_LOST):
                    return ending
                if ending is Ending.BUSY:
                    aside.append(arrival)
        return Ending.STOPPED
