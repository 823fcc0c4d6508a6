"""Active replication: every message to every namespace, as the article on outages has it."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Literal, Self

from busway_clients.errors import WrongUse
from busway_clients.senders.delivery import TIMEOUT, SdkSender, end_of, no_time
from busway_clients.senders.failure import send_failed
from busway_clients.senders.messages import Identified, Messages, SessionOf, copy_of, delayed, identified
from busway_clients.senders.outcome import Outcome
from busway_clients.senders.sender_thread import SenderThread

Success = Literal["any", "all"]
Now = Callable[[], datetime]
DELAY = timedelta(seconds=15)


def utc_now() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


class ActiveSending:
    """What both kinds of active sender decide; no I/O."""

    def __init__(
        self,
        senders: Mapping[str, SdkSender],
        success: Success,
        delay: timedelta,
        session_of: SessionOf | None,
        now: Now,
    ) -> None:
        if len(senders) < 2:  # noqa: PLR2004 - the word replication says it
            raise WrongUse(f"the namespaces of an active sender: are {len(senders)}, expected at least two")
        if success not in ("any", "all"):
            raise WrongUse(f"the success of an active sender: is {success!r}, expected 'any' or 'all'")
        if delay < timedelta():
            raise WrongUse(f"the delay of an active sender: is {delay}, expected none or a positive one")
        self.session_of = session_of
        self._names = tuple(senders)
        self._primary = next(iter(senders))
        self._success = success
        self._delay = delay
        self._now = now
        self._latest: dict[str, datetime | None] = {}
        self._turn = threading.Lock()

    def prepared(self, messages: Messages, key: str | None, timeout: float | None) -> list[Identified]:
        """Return the messages with their ids; raises WrongUse for what cannot be sent at all."""
        if timeout is not None and timeout <= 0:
            raise no_time(timeout)
        return identified(messages, key, self.session_of)

    def names(self, to: Collection[str] | None) -> list[str]:
        """Return the namespaces of a send, the primary first."""
        if to is None:
            return [*self._names]
        if unknown := [name for name in to if name not in self._names]:
            raise WrongUse(f"the namespaces of a send: {', '.join(unknown)} is none of {', '.join(self._names)}")
        return [name for name in self._names if name in to]

    def copies(self, name: str, messages: Sequence[Identified]) -> Sequence[Identified]:
        """
        Return what one namespace is sent: the messages themselves in the primary, copies in the others.

        To be asked before anything is sent, since the SDK changes a message while it encodes it.
        """
        if name == self._primary:
            return messages
        now = self._now() if self._delay else None
        copies = [copy_of(message) for _, message in messages]
        if now is not None:
            with self._turn:
                for copied in copies:
                    self._latest[name] = delayed(copied, self._delay, now, self._latest.get(name))
        return [Identified(each.message_id, copied) for each, copied in zip(messages, copies, strict=True)]

    def judged(self, outcome: Outcome) -> Outcome:
        """Return an outcome that is a success; raise SendFailed for any other."""
        if self._success == "all" and outcome.errors:
            raise send_failed("all messages in every namespace", outcome, outcome.missing_somewhere)
        if not outcome.accepted_by:
            raise send_failed("all messages in one namespace at least", outcome, outcome.accepted_nowhere)
        return outcome


class ActiveSender:
    """
    Sends each message to all namespaces at once, with the same message and session ids.

    The first namespace is the primary; in the others a message is enqueued *delay* later (scheduled enqueue time), so
    that consumers at the primary are ahead. The senders are the SDK's, for one queue or topic of each namespace; the
    caller closes them, and must not use them otherwise. May be called from several threads.
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
        Send by *senders*, named by their namespaces.

        With *success* "any" a send has succeeded when one namespace has all its messages, with "all" when every one
        has. *session_of* gives the session of a message that has none, from the message, so that a retry gives the
        same.
        """
        self._sending = ActiveSending(senders, success, delay, session_of=session_of, now=now)
        self._links = {name: SenderThread(name, sender) for name, sender in senders.items()}

    @property
    def session_of(self) -> SessionOf | None:
        """Return what gives the session of a message that has none."""
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
        Send one message or several, and return which namespace took which.

        An id that a message lacks is made once and kept on it; with *key* all ids are derived from it and the contents.
        *to* are the namespaces to send to, for the retry of a send that others have taken. Nothing else of a message
        is changed. Units: timeout in seconds. Raises SendFailed, which has the outcome; WrongUse before anything is
        sent.
        """
        prepared = self._sending.prepared(messages, key, timeout)
        names = self._sending.names(to) if prepared else []
        if not names:
            return Outcome({})
        until = end_of(timeout)
        copies = {name: self._sending.copies(name, prepared) for name in names}
        first, *others = names
        begun = {name: self._links[name].begin(copies[name], until) for name in others}
        deliveries = {first: self._links[first].send(copies[first], until)}
        for name, pending in begun.items():
            deliveries[name] = self._links[name].end(pending, copies[name], until)
        return self._sending.judged(Outcome(deliveries))

    def close(self) -> None:
        """End the threads; the SDK's senders stay open."""
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
