"""Active replication: every message is sent to every namespace (Microsoft Learn, "Insulating against outages")."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Literal, Self

from busway_clients.errors import WrongUse
from busway_clients.senders.delivery import TIMEOUT, SdkSender, deadline_of, invalid_timeout
from busway_clients.senders.failure import send_failed
from busway_clients.senders.messages import Messages, OutgoingMessage, SessionOf, copy_of, delayed, with_ids
from busway_clients.senders.outcome import Outcome
from busway_clients.senders.sender_thread import SenderThread

Success = Literal["any", "all"]
Now = Callable[[], datetime]
DELAY = timedelta(seconds=15)


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


class ActiveSending:
    """The logic that the synchronous and the asynchronous active sender share; no I/O."""

    def __init__(
        self,
        senders: Mapping[str, SdkSender],
        success: Success,
        delay: timedelta,
        session_of: SessionOf | None,
        now: Now,
    ) -> None:
        if len(senders) < 2:  # noqa: PLR2004 - with one namespace there is nothing to replicate to
            raise WrongUse(f"senders of an active sender: got {len(senders)} namespaces, expected at least two")
        if success not in ("any", "all"):
            raise WrongUse(f"success of an active sender: got {success!r}, expected 'any' or 'all'")
        if delay < timedelta():
            raise WrongUse(f"delay of an active sender: got {delay}, expected zero or more")
        self.session_of = session_of
        self._names = tuple(senders)
        self._primary = next(iter(senders))
        self._success = success
        self._delay = delay
        self._now = now
        self._latest: dict[str, datetime | None] = {}
        self._lock = threading.Lock()

    def with_ids(self, messages: Messages, key: str | None, timeout: float | None) -> list[OutgoingMessage]:
        """Return the messages with their ids; raises WrongUse for one that can never be sent."""
        if timeout is not None and timeout <= 0:
            raise invalid_timeout(timeout)
        return with_ids(messages, key, self.session_of)

    def names(self, to: Collection[str] | None) -> list[str]:
        """Return the namespaces of a send, the primary first."""
        if to is None:
            return [*self._names]
        if unknown := [name for name in to if name not in self._names]:
            raise WrongUse(f"to: unknown namespace {', '.join(unknown)}, expected {', '.join(self._names)}")
        return [name for name in self._names if name in to]

    def copies(self, name: str, messages: Sequence[OutgoingMessage]) -> Sequence[OutgoingMessage]:
        """
        Return what to send to one namespace: the messages themselves to the primary, copies to the others.

        Call it before the first send, since the SDK changes a message while it encodes it.
        """
        if name == self._primary:
            return messages
        now = self._now() if self._delay else None
        copies = [copy_of(message) for _, message in messages]
        if now is not None:
            with self._lock:
                for copied in copies:
                    self._latest[name] = delayed(copied, self._delay, now, self._latest.get(name))
        return [OutgoingMessage(each.message_id, copied) for each, copied in zip(messages, copies, strict=True)]

    def require_success(self, outcome: Outcome) -> Outcome:
        """Return *outcome* if it is a success, else raise SendFailed."""
        if self._success == "all" and outcome.errors:
            raise send_failed("all messages in every namespace", outcome, outcome.missing_somewhere)
        if not outcome.accepted_by:
            raise send_failed("all messages in at least one namespace", outcome, outcome.accepted_nowhere)
        return outcome


class ActiveSender:
    """
    Sends each message to all namespaces at once, with the same message and session ids.

    The first namespace is the primary. In the others a message is enqueued *delay* later (scheduled enqueue time), so
    that consumers at the primary see it first. The senders are the SDK's, for one queue or topic of each namespace;
    the caller closes them and must not use them for anything else. Safe to call from several threads.
    """

    def __init__(
        self,
        senders: Mapping[str, SdkSender],
        *,
        success: Success = "any",
        delay: timedelta = DELAY,
        session_of: SessionOf | None = None,
        now: Now = utc_now,
    ) -> None:
        """
        Send with *senders*, keyed by namespace name.

        With *success* "any", a send succeeds when at least one namespace has all its messages; with "all", when every
        namespace has them. *session_of* returns the session id for a message without one; it depends only on the
        message, so that a retry gets the same id.
        """
        self._sending = ActiveSending(senders, success, delay, session_of=session_of, now=now)
        self._links = {name: SenderThread(name, sender) for name, sender in senders.items()}

    @property
    def session_of(self) -> SessionOf | None:
        """Return the function that gives a session id to a message without one."""
        return self._sending.session_of

    def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        to: Collection[str] | None = None,
        timeout: float | None = TIMEOUT,
    ) -> Outcome:
        """
        Send one message or several, and return which namespace accepted which.

        A message without an id gets one, which is stored on the object; with *key*, all ids are derived from the key
        and the content. Nothing else of a message changes. *to* limits a retry to the namespaces that lack messages.
        Units: timeout in seconds. Raises SendFailed, which has the outcome; WrongUse before anything is sent.
        """
        with_ids = self._sending.with_ids(messages, key, timeout)
        names = self._sending.names(to) if with_ids else []
        if not names:
            return Outcome({})
        until = deadline_of(timeout)
        copies = {name: self._sending.copies(name, with_ids) for name in names}
        first, *others = names
        started = {name: self._links[name].begin(copies[name], until) for name in others}
        deliveries = {first: self._links[first].send(copies[first], until)}
        for name, pending in started.items():
            deliveries[name] = self._links[name].end(pending, copies[name], until)
        return self._sending.require_success(Outcome(deliveries))

    def close(self) -> None:
        """Stop the threads; the SDK's senders stay open."""
        for link in self._links.values():
            link.close()

    def __enter__(self) -> Self:
        """Return the sender."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the sender."""
        self.close()
