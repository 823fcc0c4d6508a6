# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""The link of one of the SDK's senders: it sends in batches, is opened again once, and keeps no caller waiting."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.concurrency.threads import Lock, SideTask, answer_of, is_acquired_within
from busway_clients.senders.delivery import failed_delivery, fits, ids_of, seconds_until
from busway_clients.senders.error_kinds import is_unavailable
from busway_clients.senders.messages import OutgoingMessage
from busway_clients.senders.outcome import Delivery

GRACE_SECONDS = 1.5
"""The SDK may exceed its timeout by this much."""


class SenderLink:
    """
    An SDK sender that makes one send at a time.

    Opening a link has no limit without a timeout, as for a batch, in the synchronous SDK not even with one: a peer that
    accepts the connection and never answers blocks it, also when the SDK opens a broken link again. So the caller of a
    send stops waiting in time, and sends fail immediately until the SDK returns.
    """

    def __init__(self, name: str, sender: ServiceBusSender) -> None:
        """Send to the namespace *name*."""
        # The types say what either kind returns, which is looked at.
        self._sender: Any = sender
        self._is_open = False
        self._name = name
        self._turn = Lock()
        # The send that its caller no longer waits for, although the SDK has not returned.
        self._overdue: SideTask[Delivery] | None = None

    def send(self, messages: Sequence[OutgoingMessage], until: float) -> Delivery:
        """
        Send *messages* and return the result.

        If a link was open and fails now, it is reopened once: the service closes idle links, which is not an outage.
        Units: until as in `deadline_of`.
        """
        if self._overdue is not None and not self._overdue.is_done:
            return self._late(messages, "an earlier call of the SDK has not returned; this send was not started")
        if not is_acquired_within(self._turn, seconds_until(until)):
            return self._late(messages, "earlier sends did not end in time; this one was not started")
        try:
            was_open = self._is_open
            delivery = self._deliver(messages, until)
            if not was_open or self._is_open or time.monotonic() >= until:
                return delivery
            again = self._deliver(messages[len(delivery.accepted) :], until)
            return again._replace(accepted=delivery.accepted + again.accepted)
        finally:
            self._turn.release()

    def _deliver(self, messages: Sequence[OutgoingMessage], until: float) -> Delivery:
        accepted: list[str] = []
        sending = SideTask(partial(deliver, self._sender, messages, until, accepted), f"send to {self._name}")
        seconds = seconds_until(until)
        try:
            is_done = sending.wait(None if seconds is None else seconds + GRACE_SECONDS)
        except BaseException:
            sending.abandon()
            self._overdue = sending
            raise
        if is_done:
            delivery = sending.result()
        else:
            sending.abandon()
            self._overdue = sending
            delivery = self._late(messages, "the SDK did not return in time", len(accepted))
        # The service may end the link after its answer: the next send finds that out, and opens another.
        self._is_open = delivery.error is None or not is_unavailable(delivery.error)
        return delivery

    def _late(self, messages: Sequence[OutgoingMessage], text: str, taken: int = 0) -> Delivery:
        return failed_delivery(messages, OperationTimeoutError(message=f"{self._name}: {text}"), taken)


def deliver(
    sender: Any,  # noqa: ANN401 - the SDK's, of either kind
    messages: Sequence[OutgoingMessage],
    until: float,
    accepted: list[str],
) -> Delivery:
    """
    Send *messages* in order and stop at the first error, so that the accepted messages are always the first ones.

    Each batch is accepted as a whole or not at all; *accepted* gets its ids at once, for a caller that stops waiting.
    Units: until as in `deadline_of`; it includes the SDK's retries.
    """
    ids = ids_of(messages)
    try:
        for size, payload in _batches(sender, messages):
            seconds = seconds_until(until)
            if seconds == 0:
                raise OperationTimeoutError(message="The timeout ended before the send started.")  # noqa: TRY301 - reported
            answer_of(sender.send_messages(payload, timeout=seconds))
            accepted += ids[len(accepted) : len(accepted) + size]
    except Exception as error:  # noqa: BLE001 - the outcome reports every error
        return failed_delivery(messages, error, len(accepted))
    return Delivery(ids)


def _batches(sender: Any, messages: Sequence[OutgoingMessage]) -> Sequence[tuple[int, Any]]:  # noqa: ANN401 - likewise
    """Return what to pass to the SDK, with the number of messages in each; one too large for a batch is sent alone."""
    if len(messages) == 1:
        return [(1, messages[0].message)]
    batches: list[tuple[int, Any]] = []
    batch = None
    for _, message in messages:
        if batch is None:
            batch = answer_of(sender.create_message_batch())
        if fits(batch, message):
            continue
        if len(batch):
            batches.append((len(batch), batch))
            batch = answer_of(sender.create_message_batch())
            if fits(batch, message):
                continue
        # An entity for large messages may accept alone what does not fit into a batch; if not, it reports the error.
        batches.append((1, message))
        batch = None
    if batch is not None and len(batch):
        batches.append((len(batch), batch))
    return batches
