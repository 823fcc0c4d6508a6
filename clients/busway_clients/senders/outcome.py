"""Which namespace accepted which messages."""

from collections.abc import Mapping
from typing import NamedTuple


class Delivery(NamedTuple):
    """
    The result of a send in one namespace: message ids, in the order of the messages.

    The accepted ones always come first. The namespace does not have the others, except after an error that leaves this
    unknown (a timeout, a lost connection): then it may have those of the batch that was being sent.
    """

    accepted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    error: Exception | None = None


class Outcome(NamedTuple):
    """The results of one send by namespace, in the order of the namespaces."""

    deliveries: Mapping[str, Delivery]

    @property
    def errors(self) -> dict[str, Exception]:
        """Return the errors by namespace: the SDK's own, or Unencodable and WrongUse."""
        return {name: delivery.error for name, delivery in self.deliveries.items() if delivery.error is not None}

    @property
    def accepted_by(self) -> tuple[str, ...]:
        """Return the namespaces that accepted all messages; empty if two namespaces shared a passive send."""
        count = max((len(delivery.accepted) + len(delivery.failed) for delivery in self.deliveries.values()), default=0)
        return tuple(name for name, delivery in self.deliveries.items() if len(delivery.accepted) == count)

    @property
    def missing_in(self) -> tuple[str, ...]:
        """Return the namespaces that lack messages; an active sender can send the same messages `to` them again."""
        return tuple(name for name in self.deliveries if name not in self.accepted_by)

    @property
    def accepted_nowhere(self) -> tuple[str, ...]:
        """Return the ids of the messages that no namespace accepted, one for each message, in their order."""
        # By position, since an id may occur twice: a namespace always lacks the last messages.
        return min((delivery.failed for delivery in self.deliveries.values()), key=len, default=())

    @property
    def missing_somewhere(self) -> tuple[str, ...]:
        """Return the ids of the messages that not every namespace accepted, one for each message, in their order."""
        return max((delivery.failed for delivery in self.deliveries.values()), key=len, default=())
