"""The steps of a receiver that follows a watch to another namespace."""

from collections.abc import Callable
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.exceptions import MessageLockLostError, SessionLockLostError

from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import CHECK_SECONDS, LINK_CLOSED, WAIT_SECONDS, Link, OpeningFailures, Watched
from busway_clients.endpoints.switching import Step, Switching
from busway_clients.endpoints.watching import LOGGER
from busway_clients.senders.error_kinds import describe, is_unavailable
from busway_clients.steps import Call, Condition, Lock, Steps, holding, wait_for_notification


class FollowingReceiving:
    """The logic of both receivers: receive at the endpoint of the watch, settle each message where it came from."""

    def __init__(
        self,
        watch: Watched,
        open_link: Callable[[Endpoint], Any],
        drain_seconds: float,
        retry_seconds: float,
        *,
        monotonic: Callable[[], float],
        lock: Lock,
        settled: Condition,
    ) -> None:
        self.switching = Switching(drain_seconds, retry_seconds)
        self.link: Link | None = None
        self._watch = watch
        self._open_link = open_link
        self._monotonic = monotonic
        self._lock = lock
        self._settled = settled

    def receive(
        self, max_message_count: int | None, max_wait_time: float | None
    ) -> Steps[list[ServiceBusReceivedMessage]]:
        """Return messages; an empty list while messages from before a change are unsettled."""
        end = self._monotonic() + (WAIT_SECONDS if max_wait_time is None else max_wait_time)
        return holding(self._lock, self._receive(max_message_count, end))

    def settle(self, message: ServiceBusReceivedMessage, act: Callable[[Any], Any]) -> Steps[None]:
        """Settle a message with *act*, which gets the SDK's receiver; raises MessageLockLostError if it is closed."""
        link = yield from self.origin(message)
        try:
            yield Call(lambda: act(link.sdk))
        except Exception:
            yield from self._notify(link.handed_out.note_failure, message)
            raise
        yield from self._notify(link.handed_out.note_settled, message)

    def renew_lock(self, message: ServiceBusReceivedMessage, options: dict[str, Any]) -> Steps[Any]:
        """Renew the lock of a message; raises MessageLockLostError if its link is closed."""
        link = yield from self.origin(message)
        return (yield Call(lambda: link.sdk.renew_message_lock(message, **options)))

    def release(self) -> Steps[None]:
        """Close the link; the next receive opens another one."""
        return holding(self._lock, self._release())

    def origin(self, message: ServiceBusReceivedMessage) -> Steps[Link]:
        """Return the link that a message came from; raises MessageLockLostError if it is closed."""
        yield Call(self._settled.acquire)
        try:
            link = self.link
            if link is None or message not in link.handed_out:
                raise MessageLockLostError(message=LINK_CLOSED)
        finally:
            self._settled.release()
        return link

    def _receive(self, max_message_count: int | None, end: float) -> Steps[list[ServiceBusReceivedMessage]]:
        wanted: tuple[Endpoint, ...] = yield Call(self._watch.endpoints)
        while True:
            link = yield from self._follow(wanted, end - self._monotonic())
            if link is None:
                return []
            try:
                messages: list[ServiceBusReceivedMessage] = yield self._receiving(
                    link, max_message_count, max(end - self._monotonic(), 0.01)
                )
            except Exception as error:
                if not _may_be_an_outage(error):
                    raise
                wanted = yield Call(self._watch.consult)
                if wanted[0].namespace == link.endpoint.namespace:
                    raise
                LOGGER.warning("%s: receiving failed: %s", link.endpoint, describe(error))
                if (yield from self._follow(wanted, end - self._monotonic())) is link:
                    raise
                continue
            if messages or self._monotonic() >= end:
                yield from self._notify(link.handed_out.add, messages)
                return messages
            wanted = yield Call(self._watch.endpoints)

    def _receiving(self, link: Link, max_message_count: int | None, seconds: float) -> Call:
        return Call(lambda: link.sdk.receive_messages(max_message_count, min(seconds, CHECK_SECONDS)))

    def _follow(self, wanted: tuple[Endpoint, ...], seconds: float) -> Steps[Link | None]:
        """
        Return the link to receive on, None if messages are still unsettled after *seconds*.

        If no first link can be opened, the watch is consulted: a receiver of sessions opens a link for each session.
        """
        try:
            return (yield from self._follow_known(wanted, seconds))
        except Exception as error:
            if self.link is not None or not _may_be_an_outage(error):
                raise
            others = yield Call(self._watch.consult)
            if others[0].namespace == wanted[0].namespace:
                raise
            LOGGER.warning("%s: no link could be opened: %s", wanted[0], describe(error))
        return (yield from self._follow_known(others, seconds))

    def _follow_known(self, wanted: tuple[Endpoint, ...], seconds: float) -> Steps[Link | None]:
        end = self._monotonic() + seconds
        is_time, link = yield from holding(self._settled, self._wait_for_settlement(wanted, end))
        if not is_time:
            return link
        failures = OpeningFailures(self.link, wanted)
        for endpoint in self.switching.candidates(wanted):
            try:
                opened: Link = yield self._opening(endpoint)
            except Exception as error:  # noqa: BLE001 - whatever fails, the current link is kept
                # The error may only mean that no session is available at the moment.
                failures.note(endpoint, error)
                continue
            self.switching.note_moved(endpoint, wanted, self._monotonic())
            yield from self._replace(opened)
            return opened
        kept = failures.link_to_keep()
        self.switching.note_failed(wanted, self._monotonic())
        return kept

    def _wait_for_settlement(self, wanted: tuple[Endpoint, ...], end: float) -> Steps[tuple[bool, Link | None]]:
        """Return whether it is time to move; if not, the link to receive on, None if *end* came first."""
        while self.link is not None:
            step = self.switching.next_step(wanted, self.link.unsettled, self._monotonic())
            if step is Step.STAY:
                return False, self.link
            if step is Step.MOVE:
                break
            seconds = end - self._monotonic()
            if seconds <= 0:
                return False, None
            seconds = min(seconds, self.switching.drain_seconds_left(self._monotonic()))
            yield wait_for_notification(self._settled, seconds)
        return True, None

    def _opening(self, endpoint: Endpoint) -> Call:
        return Call(lambda: self._open_link(endpoint))

    def _release(self) -> Steps[None]:
        yield from self._replace(None)
        self.switching.current = None

    def _replace(self, following: Link | None) -> Steps[None]:
        yield Call(self._settled.acquire)
        before, self.link = self.link, following
        self._settled.release()
        if before is not None:
            if before.unsettled:
                LOGGER.warning(
                    "%s: %s messages were not settled and will be delivered again", before.endpoint, before.unsettled
                )
            yield Call(before.close)

    def _notify(self, note: Callable[[Any], None], messages: Any) -> Steps[None]:  # noqa: ANN401 - one, or a list
        yield Call(self._settled.acquire)
        try:
            note(messages)
            self._settled.notify_all()
        finally:
            self._settled.release()


def _may_be_an_outage(error: Exception) -> bool:
    # The SDK raises the second without a word to the namespace, once the lock of its session has ended.
    return is_unavailable(error) or isinstance(error, SessionLockLostError)
