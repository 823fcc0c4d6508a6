"""Sending that survives an outage: messages that no namespace accepts are kept in an outbox and sent later."""

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from busway_clients.errors import ClientsError, OutboxFull, SendFailed, StoreUnavailable
from busway_clients.senders.delivery import TIMEOUT, ids_of, invalid_timeout
from busway_clients.senders.error_kinds import ErrorKind, classify, describe
from busway_clients.senders.messages import Messages, OutgoingMessage, SessionOf, with_ids
from busway_clients.senders.outbox import Outbox, Waiting
from busway_clients.senders.outcome import Outcome
from busway_clients.steps import Call, Steps, run

_LOGGER = logging.getLogger("busway_clients.senders.outbox")
_BATCH_MESSAGES = 200
PAUSE_SECONDS = 5.0


class Accepted(NamedTuple):
    """
    The result of one send.

    Shape:  sent and kept are message ids: a namespace has accepted the first, the outbox keeps the others.
    """

    sent: tuple[str, ...]
    kept: tuple[str, ...]


class Drained(NamedTuple):
    """
    The result of one drain of the outbox.

    Shape:  sent, held and left count messages; error is why the drain stopped before the outbox was empty, else None.
    """

    sent: int
    held: int
    left: int
    error: SendFailed | None


class Sender(Protocol):
    """An active or a passive sender."""

    def send(self, messages: Messages, *, timeout: float | None = TIMEOUT) -> Outcome:
        """Send, or raise SendFailed."""


class DurableSending:
    """The logic that the synchronous and the asynchronous durable sender share, as steps."""

    def __init__(
        self,
        send: Callable[[Messages, float | None], Outcome | Awaitable[Outcome]],
        outbox: Outbox,
        session_of: SessionOf | None,
    ) -> None:
        self._send = send
        self._outbox = outbox
        self._session_of = session_of
        self._taken: list[int] = []

    def send(self, messages: Messages, key: str | None, timeout: float | None) -> Steps[Accepted]:
        """Send messages without earlier ones in the outbox; keep the others, and those that no namespace accepts."""
        if timeout is not None and timeout <= 0:
            raise invalid_timeout(timeout)
        prepared = with_ids(messages, key, self._session_of)
        lanes = {each.lane for each in prepared if each.lane is not None}
        behind = (yield Call(lambda: self._outbox.lanes(lanes), blocks=True)) if len(self._outbox) else frozenset()
        direct = [each for each in prepared if each.lane not in behind]
        outcome, failed = Outcome({}), None
        if direct:
            try:
                outcome = yield self._sending(direct, timeout)
            except SendFailed as error:
                outcome, failed = error.outcome, error
        # Unsent messages are always the last ones of a send.
        taken = len(direct) - (0 if failed is None else len(failed.unsent))
        sent = {id(each) for each in direct[:taken]}
        rest = [each for each in prepared if id(each) not in sent]
        unsent = ids_of(rest)
        if failed is not None and not is_outage(failed):
            if len(rest) == len(failed.unsent):
                raise failed
            text = f"{failed}; messages of {len(behind)} sessions in the outbox must be sent first"
            raise SendFailed(text, outcome, unsent) from failed
        if rest:
            try:
                yield Call(lambda: self._outbox.put(rest), blocks=True)
            except OutboxFull as full:
                raise OutboxFull(str(full), outcome, unsent) from failed
            except ClientsError as error:
                if not sent:
                    raise
                text = f"send: {len(sent)} of {len(prepared)} messages were sent, the others are not kept: {error}"
                raise SendFailed(text, outcome, unsent) from error
        return Accepted(ids_of(direct[:taken]), unsent)

    def drain(self, timeout: float | None) -> Steps[Drained]:
        """Send the messages of the outbox, in order per lane, until none is left or no namespace accepts more."""
        sent = 0
        yield from self._remove(())
        while waiting := (yield Call(lambda: self._outbox.next(_BATCH_MESSAGES), blocks=True)):
            ordered = sorted(waiting, key=lambda each: (each.lane is not None, each.lane or "", each.number))
            for _, group in groupby(ordered, key=lambda each: each.lane):
                taken, failed = yield from self._drain_lane([*group], timeout)
                sent += taken
                if failed is not None:
                    return self._drained(sent, failed)
        return self._drained(sent, None)

    def _drain_lane(self, waiting: Sequence[Waiting], timeout: float | None) -> Steps[tuple[int, SendFailed | None]]:
        try:
            yield self._sending([each.message for each in waiting], timeout)
            taken, failed = len(waiting), None
        except SendFailed as error:
            taken, failed = len(waiting) - len(error.unsent), error
        yield from self._remove(waiting[:taken])
        if failed is None or not is_at_fault(failed):
            return taken, failed
        # A batch is refused as a whole. Sending each message alone shows which one is at fault.
        rest = waiting[taken:]
        if len(rest) == 1:
            yield from self._hold(rest[0], failed)
            return taken, None
        for each in rest:
            try:
                yield self._sending([each.message], timeout)
            except SendFailed as error:
                if not is_at_fault(error):
                    return taken, error
                yield from self._hold(each, error)
                if each.lane is not None:
                    return taken, None
            else:
                yield from self._remove([each])
                taken += 1
        return taken, None

    def _remove(self, waiting: Sequence[Waiting]) -> Steps[None]:
        # Kept until the file is updated, or the next drain would send them again.
        self._taken += (each.number for each in waiting)
        if self._taken:
            yield Call(lambda: self._outbox.remove(self._taken), blocks=True)
            self._taken = []

    def _hold(self, waiting: Waiting, failed: SendFailed) -> Steps[None]:
        fault = ", ".join(f"{name}: {describe(error)}" for name, error in failed.errors.items())
        _LOGGER.error("outbox: message %s is held, its session is blocked: %s", waiting.message.message_id, fault)
        yield Call(lambda: self._outbox.hold(waiting.number, fault), blocks=True)

    def log(self, result: Drained | StoreUnavailable) -> None:
        """Log the error of a drain that is retried."""
        if isinstance(result, StoreUnavailable):
            _LOGGER.error("outbox: drain failed and is retried: %s", result)
        elif result.error is not None:
            _LOGGER.warning("outbox: drain failed and is retried, %d messages left: %s", result.left, result.error)

    def _drained(self, sent: int, failed: SendFailed | None) -> Drained:
        held = len(self._outbox.held())
        return Drained(sent, held, len(self._outbox) - held, failed)

    def _sending(self, messages: Sequence[OutgoingMessage], timeout: float | None) -> Call:
        return Call(lambda: self._send([each.message for each in messages], timeout))


def is_outage(failed: SendFailed) -> bool:
    """Return whether a send failed because namespaces are unavailable, and not because of a message."""
    kinds = {classify(error) for error in failed.errors.values()}
    return ErrorKind.UNAVAILABLE in kinds and ErrorKind.AT_FAULT not in kinds


def is_at_fault(failed: SendFailed) -> bool:
    """Return whether a send failed because of a message, so that a retry cannot succeed."""
    return any(classify(error) is ErrorKind.AT_FAULT for error in failed.errors.values())


class DurableSender:
    """
    Sends with an active or passive sender, and keeps messages in an outbox that no namespace accepts in an outage.

    Later messages of the same session wait behind a kept one. `drain` sends the messages of the outbox; `keep_draining`
    repeats that while the application runs. A message that is itself refused (too large, an invalid value) is held for
    an operator and blocks its session; everything else continues. Safe to call from several threads.
    """

    def __init__(self, sender: Sender, outbox: Outbox, *, session_of: SessionOf | None = None) -> None:
        """
        Send with *sender* and keep messages in *outbox*; the caller closes both.

        *session_of* is by default that of the sender.
        """
        self._sending = DurableSending(
            lambda messages, timeout: sender.send(messages, timeout=timeout),
            outbox,
            session_of or getattr(sender, "session_of", None),
        )
        self._draining = threading.Lock()

    def send(self, messages: Messages, *, key: str | None = None, timeout: float | None = TIMEOUT) -> Accepted:
        """
        Send one message or several; unsent messages are on disk when this returns.

        Units:   timeout in seconds, for each namespace.
        Raises:  SendFailed if the cause is not an outage, and OutboxFull: `outcome` has what namespaces accepted,
                 `unsent` the ids of messages that are neither sent nor kept, for a retry. StoreUnavailable and WrongUse
                 if nothing was sent.
        """
        return run(self._sending.send(messages, key, timeout))

    def drain(self, *, timeout: float | None = TIMEOUT) -> Drained:
        """Send the messages of the outbox, in order per session, until none is left or no namespace accepts more."""
        with self._draining:
            return run(self._sending.drain(timeout))

    def keep_draining(self, stop: threading.Event, *, pause: float = PAUSE_SECONDS) -> None:
        """Drain repeatedly until *stop* is set; run it in its own thread. Units: pause in seconds."""
        while not stop.is_set():
            try:
                self._sending.log(self.drain())
            except StoreUnavailable as error:
                self._sending.log(error)
            stop.wait(pause)
