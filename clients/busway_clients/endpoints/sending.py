"""The steps of a sender that follows a watch to another namespace."""

from collections.abc import Callable
from typing import Any, Protocol

from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import Link, OpeningFailures, Sendable, Watched, with_ids
from busway_clients.endpoints.link_opener import StillOpening
from busway_clients.endpoints.switching import Step, Switching
from busway_clients.endpoints.watching import LOGGER
from busway_clients.senders.error_kinds import describe, is_unavailable
from busway_clients.steps import Call, Lock, Steps, holding


class Opener(Protocol):
    """Opens the links of a sender, synchronous or asynchronous."""

    def open(self, endpoint: Endpoint, *, beside: bool) -> Any:  # noqa: ANN401 - a link, or an awaitable of it
        """Return a link; raises StillOpening if it is not open *beside* another one yet."""

    def abandon(self) -> Any:  # noqa: ANN401 - None, or an awaitable of it
        """Abandon the links that are still opening."""


class FollowingSending:
    """The logic of both senders: send on the link that the watch names, one send at a time."""

    def __init__(
        self, watch: Watched, opener: Opener, retry_seconds: float, *, monotonic: Callable[[], float], lock: Lock
    ) -> None:
        self.switching = Switching(0.0, retry_seconds)
        self._watch = watch
        self._opener = opener
        self._monotonic = monotonic
        self._lock = lock
        self._link: Link | None = None

    def send(self, message: Sendable, timeout: float | None) -> Steps[None]:
        """Send on the current link; if its namespace is unavailable, retry on another that the watch names."""
        return holding(self._lock, self._send(with_ids(message), timeout))

    def create_batch(self, max_size_in_bytes: int | None) -> Steps[Any]:
        """Return an empty batch of the current link."""
        return holding(self._lock, self._create_batch(max_size_in_bytes))

    def close(self) -> Steps[None]:
        """Wait for the running send, then close."""
        return holding(self._lock, self._close())

    def _send(self, message: Sendable, timeout: float | None) -> Steps[None]:
        link = yield from self._follow((yield Call(self._watch.endpoints)))
        try:
            yield Call(lambda: link.sdk.send_messages(message, timeout=timeout))
        except Exception as error:
            if not is_unavailable(error):
                raise
            other = yield from self._follow((yield Call(self._watch.consult)), beside=False)
            if other is link:
                raise
            LOGGER.warning("%s: a send failed and is retried at %s: %s", link.endpoint, other.endpoint, describe(error))
            yield Call(lambda: other.sdk.send_messages(message, timeout=timeout))

    def _create_batch(self, max_size_in_bytes: int | None) -> Steps[Any]:
        link = yield from self._follow((yield Call(self._watch.endpoints)))
        return (yield Call(lambda: link.sdk.create_message_batch(max_size_in_bytes)))

    def _close(self) -> Steps[None]:
        link, self._link, self.switching.current = self._link, None, None
        yield Call(self._opener.abandon)
        if link is not None:
            yield Call(link.close)

    def _follow(self, wanted: tuple[Endpoint, ...], *, beside: bool = True) -> Steps[Link]:
        """
        Return the link to send on, at one of *wanted* if possible; raises what opening the first link raises.

        The current link is returned while another one opens *beside* it. If no first link can be opened, the watch is
        consulted.
        """
        try:
            return (yield from self._follow_known(wanted, beside=beside))
        except Exception as error:
            if self._link is not None or not is_unavailable(error):
                raise
            others = yield Call(self._watch.consult)
            if others[0].namespace == wanted[0].namespace:
                raise
            LOGGER.warning("%s: no link could be opened: %s", wanted[0], describe(error))
        return (yield from self._follow_known(others, beside=False))

    def _follow_known(self, wanted: tuple[Endpoint, ...], *, beside: bool) -> Steps[Link]:
        if self._link is not None and self.switching.next_step(wanted, 0, self._monotonic()) is not Step.MOVE:
            yield Call(self._opener.abandon)
            return self._link
        failures = OpeningFailures(self._link, wanted)
        for endpoint in self.switching.candidates(wanted):
            try:
                link: Link = yield self._opening(endpoint, beside=beside and self._link is not None)
            except StillOpening:
                return failures.link_to_keep()
            except Exception as error:  # noqa: BLE001 - whatever fails, the current link is kept
                failures.note(endpoint, error)
                continue
            before, self._link = self._link, link
            self.switching.note_moved(endpoint, wanted, self._monotonic())
            if before is not None:
                yield Call(before.close)
            return link
        kept = failures.link_to_keep()
        self.switching.note_failed(wanted, self._monotonic())
        return kept

    def _opening(self, endpoint: Endpoint, *, beside: bool) -> Call:
        return Call(lambda: self._opener.open(endpoint, beside=beside))
