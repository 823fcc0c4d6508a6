"""A consumer that processes each message once across regions, several sessions at a time."""

import contextlib
import itertools
import os
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient

from busway_clients.aio.receive_run import join
from busway_clients.aio.rows import RowStore
from busway_clients.aio.sessions.journal import Journal
from busway_clients.aio.sessions.lane import Lane
from busway_clients.aio.sessions.session_work import SessionWork, renew
from busway_clients.concurrency.tasks import Event, SideTask, is_set_within
from busway_clients.errors import ClientsError
from busway_clients.sessions.delivery import LOG, Delivery, must_pause
from busway_clients.sessions.entries import message_partition, session_partition
from busway_clients.sessions.leases import HeldLease
from busway_clients.sessions.order import Arrival
from busway_clients.sessions.plan import Ending, Worker, WorkerCache
from busway_clients.sessions.settings import Settings, Source, settings_for

LOCK_RENEWAL_SECONDS = 24 * 3600.0
"""For how long the locks of Service Bus are renewed; a message is kept while another region works on its copy."""
_CHECKS_PER_HEARTBEAT = 3
_LINK_SECONDS = 5.0


class JournaledConsumer:
    """
    Gives each message of a queue or subscription to *apply*, once across all sites that share the journal.

    *apply* returns when the message is processed. An exception is a failed attempt; Unprocessable faults the message
    at once. It is called for *lanes* sessions at a time. *site* is the name of this namespace, the
    same as in Busway's repl-path if Busway makes the copies. The caller closes the *client*; create it with
    `retry_total=0`, since the consumer retries itself, and the SDK would add seconds of back-off to each wait for a
    session. An asynchronous *apply* that blocks the event loop also blocks the renewal of its own lease.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        source: Source,
        store: RowStore,
        apply: Callable[[Delivery], Awaitable[None]],
        *,
        site: str,
        settings: Settings | None = None,
        lanes: int = 4,
    ) -> None:
        self.settings = settings_for(source, settings or Settings())
        self.journal = Journal(store, self.settings)
        self._client = client
        self._source = source
        self._apply = apply
        self._site = site
        self._count = lanes
        self._lanes: dict[str, SideTask[None]] = {}
        self._applying: set[Lane] = set()
        self._since = 0.0
        self._stopping = Event()
        self._cache = WorkerCache()
        # No other worker has it or gets it.
        self._name = f"{site}/{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if kind is None:
            await self.join()
        else:
            with contextlib.suppress(ClientsError):
                await self.join()

    async def start(self) -> None:
        """Open the journal and start; raises JournalMismatch and StoreUnavailable."""
        await self.journal.open()
        self._stopping.clear()
        names = [f"{self._source}-{number}" for number in range(self._count)]
        self._lanes = {name: SideTask(self._work, name) for name in names}

    def stop(self) -> None:
        """Start no further message; those in progress are finished and settled."""
        self._since = time.monotonic()
        self._stopping.set()

    async def join(self) -> None:
        """
        Wait until all lanes have stopped; raises the error that stopped them, if any.

        A lane that is stuck in the SDK is left to itself: a peer that never answers may block the synchronous one
        forever.
        """
        await join(self._lanes, self._is_waited_for)

    def _is_waited_for(self, name: str) -> bool:
        """Return whether lanes may still do something: process, record or settle messages, or ask for some."""
        now = time.monotonic()
        if not self._stopping.is_set() or self._applying:
            self._since = now
        if now - self._since < self.settings.patience_seconds + self.settings.accept_seconds + _LINK_SECONDS:
            return True
        LOG.error("%s: the SDK has not returned; not waited for any longer", name)
        return False

    async def run(self) -> None:
        """
        Process messages until `stop` is called.

        Raises what `start` raises, and JournalRefused or StoreRefused later too; it waits while the store is away.
        """
        await self.start()
        await self.join()

    async def _work(self) -> None:
        """Use one receiver after the other until the consumer stops; raises the error if it cannot continue."""
        try:
            while not self._stopping.is_set():
                try:
                    ending = await self._use_receiver()
                except Exception as error:  # noqa: BLE001 - raised again if it ends the lane
                    is_pause = must_pause(error, self._source, self._site)
                else:
                    # The next available session may be the same one.
                    is_pause = ending is not Ending.EMPTY
                if is_pause:
                    await is_set_within(self._stopping, self.settings.poll_seconds)
        finally:
            # When one lane ends, all end.
            self.stop()

    async def _use_receiver(self) -> Ending:
        async with contextlib.AsyncExitStack() as stack:
            renewer = AutoLockRenewer(max_lock_renewal_duration=LOCK_RENEWAL_SECONDS)
            stack.push_async_callback(renewer.close)
            receiver = await stack.enter_async_context(self._receiver())
            wait = partial(is_set_within, self._stopping)
            lane = Lane(receiver, renewer, self.journal, self._apply, self._applying, self._site, wait)
            work: SessionWork | MessageWork = MessageWork(self._worker, lane)
            if self.settings.lock == "session":
                work = SessionWork(session_partition(str(lane.session_id)), self._worker(), lane)
            await stack.enter_async_context(renewing(work, lane, self.settings.heartbeat_seconds))
            return await work.run()

    def _receiver(self) -> Any:  # noqa: ANN401 - a receiver of the SDK
        """Return a new receiver, for the next available session if there are sessions."""
        options: dict[str, Any] = {"max_wait_time": self.settings.accept_seconds}
        if self._source.has_sessions:
            options["session_id"] = NEXT_AVAILABLE_SESSION
        if self._source.subscription is not None:
            return self._client.get_subscription_receiver(self._source.entity, self._source.subscription, **options)
        return self._client.get_queue_receiver(self._source.entity, **options)

    def _worker(self) -> Worker:
        name = f"{self._name}/{next(self._numbers)}"
        return Worker(name, self._site, self.settings, self._cache, is_stopping=self._stopping.is_set)


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

    async def run(self) -> Ending:
        """Work until no message comes; raises as SessionWork.run does."""
        worker = self._new_worker()
        settings = worker.settings
        aside: list[Arrival] = []
        due = 0.0
        while not worker.is_stopping():
            received: Sequence[Arrival] = []
            if len(aside) < settings.batch:
                received = await self._lane.receive(settings.batch - len(aside))
            else:
                await self._lane.wait(settings.poll_seconds)
            if not received and not aside:
                return Ending.EMPTY
            if worker.monotonic() >= due:
                received, aside = [*aside, *received], []
                due = worker.monotonic() + settings.poll_seconds
            for arrival in received:
                partition = message_partition(arrival.session_id, arrival.message_id)
                self._work = SessionWork(partition, self._new_worker(), self._lane, [arrival])
                ending = await self._work.run()
                if ending in (Ending.STOPPED, Ending.LOCK_LOST):
                    return ending
                if ending is Ending.BUSY:
                    aside.append(arrival)
        return Ending.STOPPED


@contextlib.asynccontextmanager
async def renewing(work: SessionWork | MessageWork, lane: Lane, seconds: float) -> AsyncIterator[None]:
    """Renew the lease of *work* in the background, whenever the last write is *seconds* old."""
    ended = Event()

    async def keep_renewing() -> None:
        while not await is_set_within(ended, seconds / _CHECKS_PER_HEARTBEAT):
            held = work.held_lease
            if held is None or held.is_lost or not held.must_renew(time.monotonic(), seconds):
                continue
            try:
                await renew(held, lane)
            except ClientsError as error:
                # The work detects a lost lease itself, and the next renewal may succeed.
                LOG.warning("%s", error)

    heartbeat = SideTask(keep_renewing, "busway-renew-lease")
    try:
        yield
    finally:
        ended.set()
        await heartbeat.wait()
