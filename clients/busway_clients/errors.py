"""What can go wrong in this package; each message says where, what was seen and what was expected."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from busway_clients.senders.outcome import Outcome


class ClientsError(Exception):
    """Base of all errors of this package."""


class WrongUse(ClientsError, ValueError):
    """An argument or a message that cannot be used as it is; nothing was sent and nothing changed."""


class SendFailed(ClientsError):
    """
    A send whose policy was not met.

    Shape:  outcome says which namespace took which messages, errors has what each of the others raised (the cause is
            the same error, or a group of them), unsent has the ids of the messages that the policy still wants sent.
    """

    def __init__(self, text: str, outcome: "Outcome", unsent: Sequence[str]) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.unsent = tuple(unsent)

    @property
    def errors(self) -> Mapping[str, Exception]:
        """Return the SDK's errors by namespace."""
        return self.outcome.errors


class OutboxFull(ClientsError):
    """The outbox has no room for the messages; none of them was accepted."""


class OutboxInUse(ClientsError):
    """Another process or another outbox has the file."""


class UnusableFile(ClientsError):
    """A file that is not what it should be, or of another version."""


class StoreUnavailable(ClientsError):
    """A store did not answer, or not as expected; what it holds is not known."""


class ClaimLost(ClientsError):
    """The claim on a message ran out before its success was recorded, and another receiver has it now."""
