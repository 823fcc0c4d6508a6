"""Sending that survives an outage: messages that no namespace accepts are kept in an outbox and sent later."""

import logging
from collections.abc import Awaitable, Sequence
from itertools import groupby
from typing import Protocol

from busway_clients.concurrency.tasks import Event, Lock, answer_of, in_thread, is_set_within
from busway_clients.errors import ClientsError, OutboxFull, SendFailed, StoreUnavailable
from busway_clients.senders.delivery import TIMEOUT, ids_of, is_at_fault, is_outage, prepare
from busway_clients.senders.error_kinds import describe
from busway_clients.senders.messages import Messages, OutgoingMessage, SessionOf
from busway_clients.senders.outbox import Accepted, Drained, Outbox, Waiting
from busway_clients.senders.outcome import Outcome

_LOGGER = logging.getLogger("busway_clients.senders.outbox")
_BATCH_MESSAGES = 200
PAUSE_SECONDS = 5.0


class Sender(Protocol):
    """An active or a passive sender."""

    def send(self, messages: Messages, *, timeout: float | None = TIMEOUT) -> Awaitable[Outcome]:
        """Send, or raise SendFailed."""


class DurableSender:
    """
    Sends with an active or passive sender, and keeps messages in an outbox that no namespace accepts in an outage.

    Later messages of the same session wait behind a kept one. `drain` sends the messages of the outbox; `keep_draining`
    repeats that while the application runs. A message that is itself refused (too large, an invalid value) is held for
    an operator and blocks its session; everything else continues. Safe to use concurrently.
    """

    def __init__(self, sender: Sender, outbox: Outbox, *, session_of: SessionOf | None = None) -> None:
        """
        Send with *sender* and keep messages in *outbox*; the caller closes both.

        *session_of* is by default that of the sender.
        """
        self._sender = sender
        self._outbox = outbox
        self._session_of = session_of or getattr(sender, "session_of", None)
        self._draining = Lock()
        self._taken: list[int] = []

    async def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - passed to the SDK's calls
    ) -> Accepted:
        """
        Send one message or several; unsent messages are on disk when this returns.

        Units:   timeout in seconds, for each namespace.
        Raises:  SendFailed if the cause is not an outage, and OutboxFull: `outcome` has what namespaces accepted,
                 `unsent` the ids of messages that are neither sent nor kept, for a retry. StoreUnavailable and WrongUse
                 if nothing was sent.
        """
        prepared = prepare(messages, key, self._session_of, timeout)
        lanes = {message.lane for message in prepared if message.lane is not None}
        behind = (await in_thread(self._outbox.lanes, lanes)) if len(self._outbox) else frozenset()
        direct = [message for message in prepared if message.lane not in behind]
        outcome, failed = Outcome({}), None
        if direct:
            try:
                outcome = await self._send_messages(direct, timeout)
            except SendFailed as error:
                outcome, failed = error.outcome, error
        # Unsent messages are always the last ones of a send.
        taken = len(direct) - (0 if failed is None else len(failed.unsent))
        sent = {id(message) for message in direct[:taken]}
        rest = [message for message in prepared if id(message) not in sent]
        unsent = ids_of(rest)
        if failed is not None and not is_outage(failed):
            if len(rest) == len(failed.unsent):
                raise failed
            text = f"{failed}; messages of {len(behind)} sessions in the outbox must be sent first"
            raise SendFailed(text, outcome, unsent) from failed
        if rest:
            try:
                await in_thread(self._outbox.put, rest)
            except OutboxFull as full:
                raise OutboxFull(str(full), outcome, unsent) from failed
            except ClientsError as error:
                if not sent:
                    raise
                text = f"send: {len(sent)} of {len(prepared)} messages were sent, the others are not kept: {error}"
                raise SendFailed(text, outcome, unsent) from error
        return Accepted(ids_of(direct[:taken]), unsent)

    async def drain(
        self,
        *,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - passed to the SDK's calls
    ) -> Drained:
        """Send the messages of the outbox, in order per session, until none is left or no namespace accepts more."""
        async with self._draining:
            sent = 0
            await self._remove(())
            while waiting := (await in_thread(self._outbox.next, _BATCH_MESSAGES)):
                ordered = sorted(waiting, key=lambda each: (each.lane is not None, each.lane or "", each.number))
                for _, group in groupby(ordered, key=lambda each: each.lane):
                    taken, failed = await self._drain_lane([*group], timeout)
                    sent += taken
                    if failed is not None:
                        return self._drained(sent, failed)
            return self._drained(sent, None)

    async def keep_draining(self, stop: Event | None = None, *, pause: float = PAUSE_SECONDS) -> None:
        """Drain repeatedly until *stop* is set, beside the application. Units: pause in seconds."""
        stop = stop or Event()
        while not stop.is_set():
            try:
                drained = await self.drain()
            except StoreUnavailable as error:
                _LOGGER.error("outbox: drain failed and is retried: %s", error)  # noqa: TRY400 - a full disk, say
            else:
                if drained.error is not None:
                    text = "outbox: drain failed and is retried, %d messages left: %s"
                    _LOGGER.warning(text, drained.left, drained.error)
            await is_set_within(stop, pause)

    async def _drain_lane(self, waiting: Sequence[Waiting], seconds: float | None) -> tuple[int, SendFailed | None]:
        try:
            await self._send_messages([each.message for each in waiting], seconds)
            taken, failed = len(waiting), None
        except SendFailed as error:
            taken, failed = len(waiting) - len(error.unsent), error
        await self._remove(waiting[:taken])
        rest = waiting[taken:]
        if failed is None or not is_at_fault(failed):
            return taken, failed
        if len(rest) == 1:
            await self._hold(rest[0], failed)
            return taken, None
        # A batch is refused as a whole. Sending each message alone shows which one is at fault.
        for each in rest:
            sent, failed = await self._drain_lane([each], seconds)
            taken += sent
            if failed is not None or (not sent and each.lane is not None):
                return taken, failed
        return taken, None

    async def _remove(self, waiting: Sequence[Waiting]) -> None:
        # Kept until the file is updated, or the next drain would send them again.
        self._taken += (each.number for each in waiting)
        if self._taken:
            await in_thread(self._outbox.remove, self._taken)
            self._taken = []

    async def _hold(self, waiting: Waiting, failed: SendFailed) -> None:
        fault = ", ".join(f"{name}: {describe(error)}" for name, error in failed.errors.items())
        _LOGGER.error("outbox: message %s is held, its session is blocked: %s", waiting.message.message_id, fault)
        await in_thread(self._outbox.hold, waiting.number, fault)

    def _drained(self, sent: int, failed: SendFailed | None) -> Drained:
        held = len(self._outbox.held())
        return Drained(sent, held, len(self._outbox) - held, failed)

    async def _send_messages(self, messages: Sequence[OutgoingMessage], seconds: float | None) -> Outcome:
        sending = self._sender.send([outgoing.message for outgoing in messages], timeout=seconds)
        outcome: Outcome = await answer_of(sending)
        return outcome
