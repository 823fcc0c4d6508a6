"""
A fault for drills: messages that are settled without an invocation.

Azure's host may complete a message that it never passed to the worker (issue 11879 of azure-functions-host). Nothing
records it but, here, the log: it is what the watch for losses has to find.
"""

import logging
from collections.abc import Sequence

from host.annotations import annotations_of, number_of
from shared.ends.azure_amqp.raw_link import Delivery

_log = logging.getLogger(__name__)


class Losing:
    """Takes every n-th message of all triggers, counted over the life of the host."""

    def __init__(self, every: int | None = None) -> None:
        """Take none without *every*."""
        self._every = every
        self._count = 0

    def divide(self, name: str, deliveries: Sequence[Delivery]) -> tuple[Sequence[Delivery], Sequence[Delivery]]:
        """Return the messages to pass to the function *name*, and those to settle without it."""
        if self._every is None:
            return deliveries, ()
        kept: list[Delivery] = []
        lost: list[Delivery] = []
        for delivery in deliveries:
            self._count += 1
            (kept if self._count % self._every else lost).append(delivery)
        for delivery in lost:
            number = number_of(annotations_of(delivery.payload), "x-opt-sequence-number")
            _log.warning("%s: lost on purpose: sequence number %d", name, number)
        return kept, lost
