"""Which namespace took which messages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from busway_clients.errors import SendFailed, WrongUse
from busway_clients.senders.meaning import told


class Delivery(NamedTuple):
    """
    What became of the messages in one namespace, by message id and in their order.

    The accepted ones are always the first. Of the others the namespace has none, unless the error is one after which
    that is not known (a timeout, a lost connection): then it may have those of the batch that was on its way.
    """

    accepted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    error: Exception | None = None


class Outcome(NamedTuple):
    """What became of the messages of one send, by namespace, in the order of the namespaces."""

    deliveries: Mapping[str, Delivery]

    @property
    def errors(self) -> dict[str, Exception]:
        """Return the errors by namespace: the SDK's own, or Unencodable and WrongUse."""
        return {name: each.error for name, each in self.deliveries.items() if each.error is not None}

    @property
    def accepted_by(self) -> tuple[str, ...]:
        """Return the namespaces that have all messages; none of those that share the messages of a passive send."""
        count = max((len(each.accepted) + len(each.failed) for each in self.deliveries.values()), default=0)
        return tuple(name for name, each in self.deliveries.items() if len(each.accepted) == count)

    @property
    def missing_in(self) -> tuple[str, ...]:
        """Return the namespaces that lack messages; an active sender can send the same messages again `to` them."""
        return tuple(name for name in self.deliveries if name not in self.accepted_by)

    @property
    def accepted_nowhere(self) -> tuple[str, ...]:
        """Return the ids of the messages that no namespace has taken, one for each message and in their order."""
        # By position, since an id may occur twice: what a namespace lacks are always the last of the messages.
        return min((each.failed for each in self.deliveries.values()), key=len, default=())

    @property
    def missing_somewhere(self) -> tuple[str, ...]:
        """Return the ids of the messages that not every namespace has taken, one for each message, in their order."""
        return max((each.failed for each in self.deliveries.values()), key=len, default=())


def send_failed(expected: str, outcome: Outcome, unsent: Sequence[str]) -> SendFailed | WrongUse:
    """Return the error that tells an outcome, with each namespace's as its cause; WrongUse where there is no other."""
    wrong = [error for error in outcome.errors.values() if isinstance(error, WrongUse)]
    if len(wrong) == len(outcome.deliveries) and not any(each.accepted for each in outcome.deliveries.values()):
        return wrong[0]
    seen = "; ".join(
        f"{name} took {len(each.accepted)} of {len(each.accepted) + len(each.failed)}"
        + ("" if each.error is None else f", {told(each.error)}")
        for name, each in outcome.deliveries.items()
    )
    failed = SendFailed(f"send: {seen}; expected {expected}", outcome, unsent)
    errors = [*outcome.errors.values()]
    failed.__cause__ = errors[0] if len(errors) == 1 else ExceptionGroup("each namespace has its own", errors)
    return failed
