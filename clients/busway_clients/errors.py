"""What can go wrong in this package; each message says where, what was seen and what was expected."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from busway_clients.senders.outcome import Outcome


class ClientsError(Exception):
    """Base of all errors of this package."""


class WrongUse(ClientsError, ValueError):
    """An argument or a message that cannot be used as it is; nothing was sent and nothing changed."""


class MissingExtra(ClientsError, ImportError):
    """A package is not installed that one part of this distribution needs; the message names the extra with it."""


class Unencodable(ClientsError):
    """A message that the SDK cannot put on the wire, to whatever namespace; the cause is what the SDK said."""


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
        """Return the errors by namespace: the SDK's own, or Unencodable and WrongUse."""
        return self.outcome.errors


class OutboxFull(ClientsError):
    """
    The outbox has no room for the messages; it has accepted none of them.

    Shape:  outcome is that of the send before, None without one; unsent has the ids of the messages that neither a
            namespace nor the outbox has.
    """

    def __init__(self, text: str, outcome: "Outcome | None" = None, unsent: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.unsent = tuple(unsent)


class OutboxInUse(ClientsError):
    """Another process or another outbox has the file."""


class UnusableFile(ClientsError):
    """A file that is not what it should be, or of another version."""


class StoreUnavailable(ClientsError):
    """A store did not answer, or not as expected; what it holds is not known."""


class ClaimLost(ClientsError):
    """The claim on a message ran out before its success was recorded, and another receiver has it now."""


class RelayError(ClientsError):
    """What went wrong between an application and a relay; the relay's own words are in it, tokens and keys are not."""


class RelayUnavailable(RelayError):
    """An endpoint that cannot be reached, does not answer, or has no listener behind it; another may be tried."""


class NotARelay(RelayUnavailable):
    """What answers at the address does not speak the protocol of a relay."""


class RelayRefused(RelayError):
    """
    The relay, or the listener behind it, will not have this connection; another endpoint is no remedy.

    Shape:  status is the HTTP status of the refusal.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class RelayFailed(RelayError):
    """
    No endpoint would do.

    Shape:  errors has what each endpoint answered that was tried; the cause is the same error, or a group of them.
    """

    def __init__(self, text: str, errors: "Mapping[str, RelayError]") -> None:
        super().__init__(text)
        self.errors = errors
        each = [*errors.values()]
        self.__cause__ = each[0] if len(each) == 1 else ExceptionGroup("each endpoint has its own", each)


class ConnectionEnded(RelayError):
    """
    The connection has ended, and nothing more can be sent or received.

    Shape:  code is that of the WebSocket's close, 1006 if it had none; is_clean is whether the other side
            ended it on purpose (1000, 1001).
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_clean(self) -> bool:
        """Return whether the other side ended the connection on purpose."""
        return self.code in {1000, 1001}
