"""The link of a client that follows a watch to another namespace, and the links that it opens beside it."""

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.aio.closing import Closing
from busway_clients.aio.endpoints.watch import Watched
from busway_clients.concurrency.tasks import Event, Lock, SideTask, answer_of
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.switching import HandedOut, Switching
from busway_clients.senders.error_kinds import describe

LOGGER = logging.getLogger("busway_clients.endpoints")

DRAIN_SECONDS = 30.0
OPEN_SECONDS = 20.0
RETRY_SECONDS = 5.0
BESIDE_SECONDS = 1.0
"""How long a caller with a working link waits for the next one before it continues with its own."""
CLOSE_SECONDS = 2.0

Opened = TypeVar("Opened")
Sdk = TypeVar("Sdk", ServiceBusSender, ServiceBusReceiver)


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


class StillOpening(Exception):
    """A link is not open yet, and its timeout has not passed."""


class LinkOpener(Generic[Opened]):
    """
    The links that one client opens, one call at a time.

    The synchronous SDK waits without limit for a peer that accepts a connection and does not answer. Here the caller
    waits for a limited time. An endpoint is tried by one call at a time, however often a link is asked for.
    """

    def __init__(
        self,
        open_link: Callable[[Endpoint], Awaitable[Opened]],
        close: Callable[[Opened], Awaitable[None]],
        open_seconds: float,
        beside_seconds: float = BESIDE_SECONDS,
    ) -> None:
        """Open with *open_link* within *open_seconds*; *close* is called for links that are no longer needed."""
        self._open_link = open_link
        self._close = close
        self._open_seconds = open_seconds
        self._beside_seconds = beside_seconds
        self._pending: dict[Endpoint, tuple[SideTask[Opened], float]] = {}

    async def open(self, endpoint: Endpoint, *, beside: bool) -> Opened:
        """
        Return a link to *endpoint* within open_seconds, or *beside_seconds* if the caller has another link.

        Raises what opening raises; StillOpening if it is not open yet *beside* the other link; TimeoutError after
        open_seconds, and then immediately until the SDK returns.
        """
        opening, began = self._pending.get(endpoint, (None, 0.0))
        if opening is None or (opening.is_abandoned and opening.is_done):
            opening, began = SideTask(partial(self._open_link, endpoint), "open link", self._close), time.monotonic()
            self._pending[endpoint] = (opening, began)
        if not opening.is_abandoned:
            seconds = min(self._beside_seconds, self._open_seconds) if beside else self._open_seconds
            try:
                is_done = await opening.wait(began + seconds - time.monotonic())
            except BaseException:
                # The link may lock a session that nobody receives.
                await opening.abandon()
                raise
            if is_done:
                del self._pending[endpoint]
                return opening.result()
            if beside and time.monotonic() < began + self._open_seconds:
                raise StillOpening
            await opening.abandon()
        raise TimeoutError(f"no link could be opened within {self._open_seconds:g} s")

    async def abandon(self) -> None:
        """Abandon the links that are still opening."""
        for opening, _ in self._pending.values():
            await opening.abandon()


class FollowingClient(Closing, Generic[Sdk]):
    """A client with a link to the namespace that a watch names; it makes one call at a time."""

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
        self._switching = Switching(drain_seconds, retry_seconds)
        self._opener = LinkOpener(self._open, _close, open_seconds)
        self._open_seconds = open_seconds
        self._monotonic = monotonic
        self._link: Link | None = None
        self._turn = Lock()
        self._settled = Event()

    @property
    def endpoint(self) -> Endpoint | None:
        """The current endpoint, None before the first call."""
        return self._switching.current

    async def close(self) -> None:
        """Wait for the running call, then close; messages that are not settled are delivered again."""
        async with self._turn:
            await self._opener.abandon()
            await self._let_go()

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
                await self._let_go()
            raise
        if is_done:
            return calling.result()
        await calling.abandon()
        raise Stuck(message=f"{link.endpoint}: the SDK did not return within {seconds:g} s")

    async def _let_go(self) -> None:
        """Close the link; the next call opens another."""
        self._switching.current = None
        await self._replace(None)

    async def _first(
        self,
        wanted: tuple[Endpoint, ...],
        follow: Callable[[tuple[Endpoint, ...]], Awaitable[Link | None]],
        is_outage: Callable[[Exception], bool],
    ) -> Link | None:
        """
        Return what *follow* returns for the endpoints, None if it must not move yet.

        If no first link can be opened, the watch is consulted: a receiver of sessions opens a link for each session.
        """
        try:
            return await follow(wanted)
        except Exception as error:
            if self._link is not None or not is_outage(error):
                raise
            others = await answer_of(self._watch.consult())
            if others[0].namespace == wanted[0].namespace:
                raise
            LOGGER.warning("%s: no link could be opened: %s", wanted[0], describe(error))
        return await follow(others)

    async def _move(self, wanted: tuple[Endpoint, ...], *, beside: bool = False) -> Link:
        """
        Return a link to the first of *wanted* that can be opened, or the current one.

        It is the current one too while another opens *beside* it. Raises what opening the first link raises.
        """
        for endpoint in (candidates := self._switching.candidates(wanted)):
            try:
                link = await self._opener.open(endpoint, beside=beside and self._link is not None)
            except StillOpening:
                break
            except Exception as error:
                # For a receiver, the error may only mean that no session is available at the moment.
                if self._link is None and endpoint == candidates[-1]:
                    raise
                LOGGER.error("%s cannot be opened: %s", endpoint, describe(error))  # noqa: TRY400 - its text may quote a message
            else:
                self._switching.note_moved(endpoint, wanted, self._monotonic())
                await self._replace(link)
                return link
        else:
            self._switching.note_failed(wanted, self._monotonic())
        assert self._link is not None  # noqa: S101 - without one, the error of the last candidate is raised
        return self._link

    async def _open(self, endpoint: Endpoint) -> Link:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self._connect(endpoint))
            sdk = await stack.enter_async_context(self._open_link(client))
            return Link(endpoint, sdk, stack.pop_all().aclose)

    async def _replace(self, following: Link | None) -> None:
        before, self._link = self._link, following
        if before is not None:
            if before.unsettled:
                text = "%s: %s messages were not settled and will be delivered again"
                LOGGER.warning(text, before.endpoint, before.unsettled)
            await _close(before)


async def _answer_of_sdk(sdk: Any, method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the SDK's
    return await answer_of(getattr(sdk, method)(*arguments, **options))


async def _close(link: Link) -> None:
    """Close a link; one that is stuck in the SDK is left to itself."""
    closing = SideTask(link.close, "close link")
    if await closing.wait(CLOSE_SECONDS):
        closing.result()
    else:
        await closing.abandon()
