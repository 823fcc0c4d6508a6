"""Clients that follow a watch to another namespace: their link, its messages, and the links that open beside it."""

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError, SessionLockLostError

from busway_clients.aio.closing import Closing
from busway_clients.aio.endpoints.watch import Watched
from busway_clients.concurrency.tasks import Event, Lock, SideTask, answer_of, is_set_within
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.senders.error_kinds import describe, is_unavailable

LOGGER = logging.getLogger("busway_clients.endpoints")

DRAIN_SECONDS = 30.0
OPEN_SECONDS = 20.0
RETRY_SECONDS = 5.0
BESIDE_SECONDS = 1.0
"""How long a caller with a working link waits for the next one before it continues with its own."""
CLOSE_SECONDS = 2.0

Sdk = TypeVar("Sdk", ServiceBusSender, ServiceBusReceiver)


class HandedOut:
    """The messages of one link that the application has received; safe to use from several threads."""

    def __init__(self) -> None:
        self._messages: dict[int, ServiceBusReceivedMessage] = {}
        self._settling_failed: set[int] = set()
        self._lock = threading.Lock()

    def __contains__(self, message: ServiceBusReceivedMessage) -> bool:
        return self._messages.get(id(message)) is message

    def add(self, messages: Iterable[ServiceBusReceivedMessage]) -> None:
        """Add the messages that must be settled, and forget earlier ones whose lock has expired."""
        now = datetime.now(UTC)
        with self._lock:
            for key, message in [*self._messages.items()]:
                if message.locked_until_utc and message.locked_until_utc < now:
                    self._forget(key)
            self._messages |= {id(message): message for message in messages if message.lock_token is not None}

    def note_settled(self, message: ServiceBusReceivedMessage) -> None:
        """Forget a message that is settled."""
        with self._lock:
            self._forget(id(message))

    def note_failure(self, message: ServiceBusReceivedMessage) -> None:
        """Stop waiting for a message that could not be settled; the application may still try again."""
        self._settling_failed.add(id(message))

    def unsettled(self, session_until: datetime | None) -> int:
        """Return how many messages are unsettled and still locked; *session_until* is when their session lock ends."""
        now = datetime.now(UTC)
        with self._lock:
            until = {key: message.locked_until_utc or session_until for key, message in self._messages.items()}
        return sum(key not in self._settling_failed and (end is None or end > now) for key, end in until.items())

    def _forget(self, key: int) -> None:
        self._messages.pop(key, None)
        self._settling_failed.discard(key)


@dataclass(frozen=True)
class Link:
    """An SDK sender or receiver that is open at one endpoint; *close* closes it and its client."""

    endpoint: Endpoint
    sdk: Any
    close: Callable[[], Awaitable[None]]
    handed_out: HandedOut = field(default_factory=HandedOut)

    @property
    def session(self) -> Any:  # noqa: ANN401 - the SDK's, which differs between the two kinds
        """The session of a receiver, None for an entity without sessions."""
        # The SDK's type hints say that there always is one.
        return getattr(self.sdk, "session", None)

    @property
    def unsettled(self) -> int:
        """The number of received messages that the application has not settled and whose locks have not expired."""
        return self.handed_out.unsettled(None if self.session is None else self.session.locked_until_utc)


class Stuck(OperationTimeoutError):
    """A call of the SDK has not returned in time: its link is useless."""


class FollowingClient(Closing, Generic[Sdk]):
    """
    A client with a link to the namespace that a watch names; it makes one call at a time.

    1. It moves when the first of the wanted endpoints is in another namespace than the current one.
    2. Before that it waits at most `drain_seconds` until the messages that it received are settled. During an outage
       they cannot be settled, and the namespace delivers them again.
    3. It opens the new link before it closes the old one. If no new link can be opened, it stays and retries later.
    """

    def __init__(
        self,
        watch: Watched,
        connect: Callable[[Endpoint], ServiceBusClient],
        open_link: Callable[[ServiceBusClient], Sdk],
        *,
        drain_seconds: float = DRAIN_SECONDS,
        open_seconds: float = OPEN_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Follow *watch*; *connect* returns a client of an endpoint, and *open_link* a sender or receiver of that client.

        A received message that is not settled within *drain_seconds* of the change, or before its lock ends, is
        delivered again by its namespace. An endpoint that *connect* rejects, or that does not open within
        *open_seconds*, is logged and not retried for *retry_seconds*; the client keeps its current link.
        """
        self._watch = watch
        self._connect = connect
        self._open_link: Callable[[ServiceBusClient], Sdk] = open_link
        self._drain_seconds = drain_seconds
        self._open_seconds = open_seconds
        self._retry_seconds = retry_seconds
        self._monotonic = monotonic
        self._link: Link | None = None
        self._opening: dict[Endpoint, tuple[SideTask[Link], float]] = {}
        self._wanted: tuple[Endpoint, ...] = ()
        self._wanted_since = 0.0
        self._failed: tuple[Endpoint, ...] = ()
        self._failed_until = 0.0
        self._turn = Lock()
        self._settled = Event()

    @property
    def endpoint(self) -> Endpoint | None:
        """The current endpoint, None before the first call."""
        return None if self._link is None else self._link.endpoint

    async def close(self) -> None:
        """Wait for the running call, then close; messages that are not settled are delivered again."""
        async with self._turn:
            await self._abandon_openings()
            await self._replace(None)

    async def _call(self, link: Link, method: str, *arguments: Any, seconds: float, **options: Any) -> Any:  # noqa: ANN401 - the SDK's
        """
        Return what a method of the link's sender or receiver returns; raises Stuck after *seconds*.

        The synchronous SDK opens a broken link again without any limit, if the peer accepts the connection and does not
        answer.
        """
        calling = SideTask(partial(_answer_of_sdk, link.sdk, method, *arguments, **options), method)
        try:
            is_done = await calling.wait(seconds)
        except BaseException:
            await calling.abandon()
            if not calling.is_done:
                # Its caller was interrupted, and a thread goes on with the link.
                await self._replace(None)
            raise
        if is_done:
            return calling.result()
        await calling.abandon()
        raise Stuck(message=f"{link.endpoint}: the SDK did not return within {seconds:g} s")

    async def _follow(self, *, end: float = 0.0, beside: bool = False) -> Link | None:
        """
        Return the link to use, None if messages are still unsettled at *end*.

        If no first link can be opened, the watch is consulted: a receiver of sessions opens a link for each session.
        """
        wanted = await answer_of(self._watch.endpoints())
        try:
            return await self._follow_to(wanted, end=end, beside=beside)
        except Exception as error:
            if self._link is not None:
                raise
            link = await self._follow_after(error, wanted[0], end=end)
            LOGGER.warning("%s: no link could be opened: %s", wanted[0], describe(error))
            return link

    async def _follow_after(self, error: Exception, used: Endpoint, *, end: float = 0.0) -> Link | None:
        """
        Return another link as `_follow`, after *error* at the endpoint that was *used*.

        Raises *error* unless it may be an outage and the watch names another namespace that can be opened.
        """
        if not _may_be_an_outage(error):
            raise error
        if isinstance(error, Stuck):
            await self._replace(None)
        before = self._link
        wanted = await answer_of(self._watch.consult())
        if wanted[0].namespace == used.namespace:
            raise error
        link = await self._follow_to(wanted, end=end)
        if link is before:
            raise error
        return link

    async def _follow_to(self, wanted: tuple[Endpoint, ...], *, end: float, beside: bool = False) -> Link | None:
        while self._is_elsewhere(wanted):
            self._settled.clear()
            left = self._wanted_since + self._drain_seconds - self._monotonic()
            if left <= 0 or self._link is None or not self._link.unsettled:
                return await self._move(wanted, beside=beside)
            seconds = end - self._monotonic()
            if seconds <= 0:
                return None
            await is_set_within(self._settled, min(seconds, left))
        await self._abandon_openings()
        return self._link

    def _is_elsewhere(self, wanted: tuple[Endpoint, ...]) -> bool:
        """Return whether another namespace is wanted, unless it could not be opened a moment ago."""
        if self._link is not None and wanted[0].namespace == self._link.endpoint.namespace:
            self._wanted = ()
            return False
        now = self._monotonic()
        if self._link is not None and wanted == self._failed and now < self._failed_until:
            return False
        if wanted != self._wanted:
            self._wanted, self._wanted_since = wanted, now
        return True

    async def _move(self, wanted: tuple[Endpoint, ...], *, beside: bool) -> Link:
        """
        Return a link to the first of *wanted* that can be opened, or the current one.

        It is the current one too while another opens *beside* it. Raises what opening the first link raises.
        """
        current = self.endpoint
        candidates = wanted[: wanted.index(current)] if current in wanted else wanted
        for endpoint in candidates:
            try:
                link = await self._opened(endpoint, self._link if beside else None)
            except Exception as error:
                # For a receiver, the error may only mean that no session is available at the moment.
                if self._link is None and endpoint == candidates[-1]:
                    raise
                LOGGER.error("%s cannot be opened: %s", endpoint, describe(error))  # noqa: TRY400 - its text may quote a message
                continue
            if link is self._link:
                return link
            self._wanted = ()
            await self._replace(link)
            if endpoint.namespace == wanted[0].namespace:
                return link
            break
        # The first of *wanted* could not be opened.
        self._failed, self._failed_until = wanted, self._monotonic() + self._retry_seconds
        assert self._link is not None  # noqa: S101 - without one, the error of the last candidate is raised
        return self._link

    async def _opened(self, endpoint: Endpoint, beside: Link | None) -> Link:
        """
        Return a link to *endpoint* within open_seconds, or after a second the one that is used *beside* it.

        The synchronous SDK waits without limit for a peer that accepts a connection and does not answer. So the caller
        stops waiting (TimeoutError), and an endpoint is tried by one call at a time, however often it is asked for.
        """
        opening, began = self._opening.get(endpoint, (None, 0.0))
        if opening is None or (opening.is_abandoned and opening.is_done):
            opening, began = SideTask(partial(self._open, endpoint), "open link", _close), time.monotonic()
            self._opening[endpoint] = (opening, began)
        if not opening.is_abandoned:
            seconds = self._open_seconds if beside is None else min(BESIDE_SECONDS, self._open_seconds)
            try:
                is_done = await opening.wait(began + seconds - time.monotonic())
            except BaseException:
                # The link may lock a session that nobody receives.
                await opening.abandon()
                raise
            if is_done:
                del self._opening[endpoint]
                return opening.result()
            if beside is not None and time.monotonic() < began + self._open_seconds:
                return beside
            await opening.abandon()
        raise TimeoutError(f"no link could be opened within {self._open_seconds:g} s")

    async def _open(self, endpoint: Endpoint) -> Link:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self._connect(endpoint))
            sdk = await stack.enter_async_context(self._open_link(client))
            return Link(endpoint, sdk, stack.pop_all().aclose)

    async def _abandon_openings(self) -> None:
        for opening, _ in self._opening.values():
            await opening.abandon()

    async def _replace(self, following: Link | None) -> None:
        """Close the link; without a *following* one, the next call opens another."""
        before, self._link = self._link, following
        if before is not None:
            if before.unsettled:
                text = "%s: %s messages were not settled and will be delivered again"
                LOGGER.warning(text, before.endpoint, before.unsettled)
            await _close(before)


def _may_be_an_outage(error: Exception) -> bool:
    # The SDK raises the second without a word to the namespace, once the lock of its session has ended.
    return is_unavailable(error) or isinstance(error, SessionLockLostError)


async def _answer_of_sdk(sdk: Any, method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the SDK's
    return await answer_of(getattr(sdk, method)(*arguments, **options))


async def _close(link: Link) -> None:
    """Close a link; one that is stuck in the SDK is left to itself."""
    closing = SideTask(link.close, "close link")
    if await closing.wait(CLOSE_SECONDS):
        closing.result()
    else:
        await closing.abandon()
