"""A receiver that takes messages from the namespace which a watch names."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSession,
)
from azure.servicebus.exceptions import MessageLockLostError

from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import (
    DRAIN_SECONDS,
    LEFT_BEHIND,
    LOOK_SECONDS,
    OPEN_SECONDS,
    RETRY_SECONDS,
    WAIT_SECONDS,
    HandedOut,
)
from busway_clients.endpoints.moorings import Moorings, Step
from busway_clients.endpoints.openings import Openings
from busway_clients.endpoints.watch import LOGGER, Watched
from busway_clients.senders.meaning import is_unavailable, told


@dataclass(frozen=True)
class _Link:
    endpoint: Endpoint
    receiver: ServiceBusReceiver
    ends: contextlib.ExitStack
    handed_out: HandedOut = field(default_factory=HandedOut)

    @property
    def session(self) -> ServiceBusSession | None:
        # The SDK says that there always is one; of an entity without sessions there is none.
        return getattr(self.receiver, "session", None)

    @property
    def held(self) -> int:
        session = self.session
        return self.handed_out.held(None if session is None else session.locked_until_utc)


class FollowingReceiver:
    """
    A ServiceBusReceiver that moves when the watch names another namespace; ends with its context.

    Before it moves it takes nothing more, and waits until what it has handed out is settled, where it came from.
    Messages may be settled from any thread; `receive_messages` is for one at a time.
    """

    def __init__(
        self,
        watch: Watched,
        connect: Callable[[Endpoint], ServiceBusClient],
        open_receiver: Callable[[ServiceBusClient], ServiceBusReceiver],
        *,
        drain_seconds: float = DRAIN_SECONDS,
        open_seconds: float = OPEN_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Follow *watch*, with a client of each namespace from *connect* and a receiver of it from *open_receiver*.

        What is not settled within *drain_seconds* of the change, or when its lock ends, is left behind: it is delivered
        again there. An endpoint that cannot be opened within *open_seconds* is left alone for *retry_seconds*, and the
        receiver stays.
        """
        self._watch = watch
        self._connect = connect
        self._open_receiver = open_receiver
        self._openings = Openings(self._opened, _close, open_seconds)
        self._monotonic = monotonic
        self._moorings = Moorings(drain_seconds, retry_seconds)
        self._receiving = threading.Lock()
        self._settled = threading.Condition()
        self._link: _Link | None = None

    @property
    def endpoint(self) -> Endpoint | None:
        """Where it receives from, None before the first call."""
        return self._moorings.present

    @property
    def session(self) -> ServiceBusSession | None:
        """The session of the present link, None where the entity has none."""
        return None if self._link is None else self._link.session

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """
        Return messages as a ServiceBusReceiver does; none while those from before a change are not settled.

        Raises what the SDK raises, if the watch names no other namespace then.
        """
        end = self._monotonic() + (WAIT_SECONDS if max_wait_time is None else max_wait_time)
        with self._receiving:
            wanted = self._watch.endpoints()
            while True:
                left = end - self._monotonic()
                link = self._followed(wanted, left)
                if link is None:
                    return []
                left = max(end - self._monotonic(), 0.01)
                try:
                    messages = link.receiver.receive_messages(max_message_count, min(left, LOOK_SECONDS))
                except Exception as error:
                    if not is_unavailable(error):
                        raise
                    wanted = self._watch.consult()
                    if wanted[0].namespace == link.endpoint.namespace:
                        raise
                    LOGGER.warning("Receiving from %s failed: %s", link.endpoint, told(error))
                    if self._followed(wanted, end - self._monotonic()) is link:
                        raise
                    continue
                if messages or self._monotonic() >= end:
                    with self._settled:
                        link.handed_out.add(messages)
                    return messages
                wanted = self._watch.endpoints()

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Complete *message* where it came from; MessageLockLostError if that was left behind."""
        with self._settling(message) as receiver:
            receiver.complete_message(message)

    def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Abandon *message* where it came from; MessageLockLostError if that was left behind."""
        with self._settling(message) as receiver:
            receiver.abandon_message(message)

    def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """
        Defer *message* where it came from; MessageLockLostError if that was left behind.

        It is received again with a client of that namespace: elsewhere its sequence number is another message's.
        """
        with self._settling(message) as receiver:
            receiver.defer_message(message)

    def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Dead-letter *message* where it came from; MessageLockLostError if that was left behind."""
        with self._settling(message) as receiver:
            receiver.dead_letter_message(message, reason, error_description)

    def renew_message_lock(self, message: ServiceBusReceivedMessage, **options: Any) -> Any:  # noqa: ANN401 - the SDK's
        """Renew the lock of *message*; MessageLockLostError if its link was left behind."""
        return self._origin(message).receiver.renew_message_lock(message, **options)

    def release(self) -> None:
        """Close the link; the next `receive_messages` opens another: with NEXT_AVAILABLE_SESSION, another session."""
        with self._receiving:
            self._leave(None)
            self._moorings.present = None

    def close(self) -> None:
        """Close; what is not settled is delivered again."""
        self.release()

    def __enter__(self) -> Self:
        """Open nothing yet: the first call does."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _followed(self, wanted: tuple[Endpoint, ...], patience: float) -> _Link | None:
        """Return the link to receive on, None if *patience* seconds were not enough to settle what is held."""
        end = self._monotonic() + patience
        with self._settled:
            while self._link is not None:
                step = self._moorings.step(wanted, self._link.held, self._monotonic())
                if step is Step.STAY:
                    return self._link
                if step is Step.MOVE:
                    break
                left = end - self._monotonic()
                if left <= 0:
                    return None
                self._settled.wait(min(left, self._moorings.patience(self._monotonic())))
        failure: Exception | None = None
        for endpoint in self._moorings.choices(wanted):
            try:
                link = self._openings.link(endpoint, beside=False)
            except Exception as error:  # noqa: BLE001 - the present one is kept, whatever is wrong
                failure = error
                # Where there is nothing else, it is raised; it may mean no more than that no session is there to take.
                if self._link is not None or endpoint != wanted[-1]:
                    LOGGER.error("%s cannot be opened: %s", endpoint, told(error))
                continue
            self._moorings.moved(endpoint, wanted, self._monotonic())
            self._leave(link)
            return link
        if self._link is None:
            assert failure is not None  # noqa: S101 - a watch names one endpoint at least
            raise failure
        self._moorings.refused(wanted, self._monotonic())
        return self._link

    def _opened(self, endpoint: Endpoint) -> _Link:
        with contextlib.ExitStack() as ends:
            client = ends.enter_context(self._connect(endpoint))
            receiver = ends.enter_context(self._open_receiver(client))
            return _Link(endpoint, receiver, ends.pop_all())

    def _leave(self, following: _Link | None) -> None:
        with self._settled:
            before, self._link = self._link, following
        if before is not None:
            if before.held:
                LOGGER.warning(
                    "%s messages of %s were left unsettled: it delivers them again.", before.held, before.endpoint
                )
            before.ends.close()

    @contextlib.contextmanager
    def _settling(self, message: ServiceBusReceivedMessage) -> Iterator[ServiceBusReceiver]:
        link = self._origin(message)
        try:
            yield link.receiver
        except Exception:
            with self._settled:
                link.handed_out.failed(message)
                self._settled.notify_all()
            raise
        with self._settled:
            link.handed_out.settled(message)
            self._settled.notify_all()

    def _origin(self, message: ServiceBusReceivedMessage) -> _Link:
        with self._settled:
            link = self._link
            if link is None or message not in link.handed_out:
                raise MessageLockLostError(message=LEFT_BEHIND)
        return link


def _close(link: _Link) -> None:
    link.ends.close()
