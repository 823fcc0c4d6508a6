"""Active replication: every message is sent to every namespace (Microsoft Learn, "Insulating against outages")."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from azure.servicebus.aio import ServiceBusSender

from busway_clients.aio.closing import Closing
from busway_clients.aio.sender_link import SenderLink
from busway_clients.concurrency.tasks import SideTask
from busway_clients.errors import WrongUse
from busway_clients.senders.delivery import TIMEOUT, deadline_of, prepare, send_failed
from busway_clients.senders.messages import Messages, OutgoingMessage, SessionOf, copy_of, delayed
from busway_clients.senders.outcome import Outcome

Success = Literal["any", "all"]
Now = Callable[[], datetime]
DELAY = timedelta(seconds=15)


class ActiveSender(Closing):
    """
    Sends each message to all namespaces at once, with the same message and session ids.

    The first namespace is the primary. In the others a message is enqueued *delay* later (scheduled enqueue time), so
    that consumers at the primary see it first. The senders are the SDK's, for one queue or topic of each namespace;
    the caller closes them and must not use them for anything else. Safe to use concurrently.
    """

    def __init__(
        self,
        senders: Mapping[str, ServiceBusSender],
        *,
        success: Success = "any",
        delay: timedelta = DELAY,
        session_of: SessionOf | None = None,
        now: Now = lambda: datetime.now(UTC),
    ) -> None:
        """
        Send with *senders*, keyed by namespace name.

        With *success* "any", a send succeeds when at least one namespace has all its messages; with "all", when every
        namespace has them. *session_of* returns the session id for a message without one; it depends only on the
        message, so that a retry gets the same id.
        """
        if len(senders) < 2:  # noqa: PLR2004 - with one namespace there is nothing to replicate to
            raise WrongUse(f"senders of an active sender: got {len(senders)} namespaces, expected at least two")
        if success not in ("any", "all"):
            raise WrongUse(f"success of an active sender: got {success!r}, expected 'any' or 'all'")
        if delay < timedelta():
            raise WrongUse(f"delay of an active sender: got {delay}, expected zero or more")
        self.session_of = session_of
        self._links = {name: SenderLink(name, sender) for name, sender in senders.items()}
        self._primary = next(iter(senders))
        self._success = success
        self._delay = delay
        self._now = now
        self._latest: dict[str, datetime | None] = {}
        self._scheduling = threading.Lock()

    async def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        to: Collection[str] | None = None,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - passed to the SDK's calls
    ) -> Outcome:
        """
        Send one message or several, and return which namespace accepted which.

        A message without an id gets one, which is stored on the object; with *key*, all ids are derived from the key
        and the content. Nothing else of a message changes. *to* limits a retry to the namespaces that lack messages.
        Units: timeout in seconds. Raises SendFailed, which has the outcome; WrongUse before anything is sent.
        """
        prepared = prepare(messages, key, self.session_of, timeout)
        if not prepared or not (names := self._names(to)):
            return Outcome({})
        until = deadline_of(timeout)
        # All before the first send, since the SDK changes a message while it encodes it.
        copies = {name: self._copies(name, prepared) for name in names}
        sends = {name: partial(self._links[name].send, copies[name], until) for name in names}
        first, *others = names
        started = {name: SideTask(sends[name], f"send to {name}") for name in others}
        try:
            deliveries = {first: await sends[first]()}
            for name, sending in started.items():
                await sending.wait()
                deliveries[name] = sending.result()
        except BaseException:
            for sending in started.values():
                await sending.abandon()
            raise
        outcome = Outcome(deliveries)
        if self._success == "all" and outcome.errors:
            raise send_failed("all messages in every namespace", outcome, outcome.missing_somewhere)
        if not outcome.accepted_by:
            raise send_failed("all messages in at least one namespace", outcome, outcome.accepted_nowhere)
        return outcome

    def _names(self, to: Collection[str] | None) -> list[str]:
        """Return the namespaces of a send, the primary first."""
        if to is None:
            return [*self._links]
        if unknown := [name for name in to if name not in self._links]:
            raise WrongUse(f"to: unknown namespace {', '.join(unknown)}, expected {', '.join(self._links)}")
        return [name for name in self._links if name in to]

    def _copies(self, name: str, messages: Sequence[OutgoingMessage]) -> Sequence[OutgoingMessage]:
        """Return what to send to one namespace: the messages themselves to the primary, copies to the others."""
        if name == self._primary:
            return messages
        copies = [OutgoingMessage(outgoing.message_id, copy_of(outgoing.message)) for outgoing in messages]
        if self._delay:
            now = self._now()
            with self._scheduling:
                for copied in copies:
                    self._latest[name] = delayed(copied.raw, self._delay, now, self._latest.get(name))
        return copies
