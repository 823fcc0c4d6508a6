"""The link of a client that follows a watch to another namespace."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from busway_clients.aio.endpoints.link_opener import LinkOpener, close_link, open_link
from busway_clients.aio.endpoints.watch import Watched
from busway_clients.concurrency.tasks import answer_of
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import LOGGER, Link, StillOpening
from busway_clients.endpoints.switching import Switching
from busway_clients.senders.error_kinds import describe


class FollowedLink:
    """The link of one client; the caller makes one call at a time."""

    def __init__(
        self,
        watch: Watched,
        connect: Callable[[Endpoint], Any],
        open_sdk: Callable[[Any], Any],
        switching: Switching,
        *,
        open_seconds: float,
        is_outage: Callable[[Exception], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """Follow *watch*; an error of opening the first link that *is_outage* makes it read its source."""
        self.link: Link | None = None
        self.switching = switching
        self._watch = watch
        self._opener = LinkOpener(partial(open_link, connect, open_sdk), close_link, open_seconds)
        self._is_outage = is_outage
        self._monotonic = monotonic

    async def wanted(self) -> tuple[Endpoint, ...]:
        """Return the endpoints of the watch."""
        endpoints: tuple[Endpoint, ...] = await answer_of(self._watch.endpoints())
        return endpoints

    async def consulted(self) -> tuple[Endpoint, ...]:
        """Let the watch read its source now, and return the endpoints."""
        endpoints: tuple[Endpoint, ...] = await answer_of(self._watch.consult())
        return endpoints

    async def first(
        self, wanted: tuple[Endpoint, ...], follow: Callable[[tuple[Endpoint, ...]], Awaitable[Link | None]]
    ) -> Link | None:
        """
        Return what *follow* returns for the endpoints, None if it must not move yet.

        If no first link can be opened, the watch is consulted: a receiver of sessions opens a link for each session.
        """
        try:
            return await follow(wanted)
        except Exception as error:
            if self.link is not None or not self._is_outage(error):
                raise
            others = await self.consulted()
            if others[0].namespace == wanted[0].namespace:
                raise
            LOGGER.warning("%s: no link could be opened: %s", wanted[0], describe(error))
        return await follow(others)

    async def move(self, wanted: tuple[Endpoint, ...], *, beside: bool = False) -> Link:
        """
        Return a link to the first of *wanted* that can be opened, or the current one.

        It is the current one too while another opens *beside* it. Raises what opening the first link raises.
        """
        for endpoint in (candidates := self.switching.candidates(wanted)):
            try:
                link = await self._opener.open(endpoint, beside=beside and self.link is not None)
            except StillOpening:
                break
            except Exception as error:
                # For a receiver, the error may only mean that no session is available at the moment.
                if self.link is None and endpoint == candidates[-1]:
                    raise
                LOGGER.error("%s cannot be opened: %s", endpoint, describe(error))
            else:
                self.switching.note_moved(endpoint, wanted, self._monotonic())
                await self._replace(link)
                return link
        else:
            self.switching.note_failed(wanted, self._monotonic())
        assert self.link is not None  # noqa: S101 - without one, the error of the last candidate is raised
        return self.link

    async def abandon_others(self) -> None:
        """Abandon the links that are still opening."""
        await self._opener.abandon()

    async def close(self) -> None:
        """Close the link; the next call opens another one."""
        self.switching.current = None
        await self._opener.abandon()
        await self._replace(None)

    async def _replace(self, following: Link | None) -> None:
        before, self.link = self.link, following
        if before is not None:
            if before.unsettled:
                text = "%s: %s messages were not settled and will be delivered again"
                LOGGER.warning(text, before.endpoint, before.unsettled)
            await before.close()
