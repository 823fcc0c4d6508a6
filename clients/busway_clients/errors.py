"""The errors of this package; each message says where, what was found and what was expected."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from busway_clients.senders.outcome import Outcome


class ClientsError(Exception):
    """Base of all errors of this package."""


class WrongUse(ClientsError, ValueError):
    """An invalid argument or message; nothing was sent and nothing changed."""


class NotSynchronous(WrongUse):
    """A synchronous class was given a function or an SDK class of asyncio."""


class MissingExtra(ClientsError, ImportError):
    """A package that part of this distribution needs is missing; the message names the extra that installs it."""


class Unencodable(ClientsError):
    """A message that the SDK cannot encode for any namespace; the cause is the SDK's error."""


class SendFailed(ClientsError):
    """
    A send that did not succeed under its policy.

    Shape:  outcome says which namespace accepted which messages; errors has the error of each of the others (the cause
            is the same error, or a group of them); unsent has the ids of the messages that must still be sent.
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
    The outbox is full and has accepted none of the messages.

    Shape:  outcome is that of the preceding send, None if there was none; unsent has the ids of the messages that
            neither a namespace nor the outbox has.
    """

    def __init__(self, text: str, outcome: "Outcome | None" = None, unsent: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.unsent = tuple(unsent)


class OutboxInUse(ClientsError):
    """Another process or another outbox has the file open."""


class StoreUnavailable(ClientsError):
    """A store did not answer, or gave an unexpected answer; its content is unknown, and a retry is safe."""


class StoreRefused(StoreUnavailable):
    """A store that a retry does not reach: missing rights, a missing table, other contents."""


class UnusableFile(StoreRefused):
    """A file of another kind or version."""


class Conflict(ClientsError):
    """A row of a store has changed since the writer read it; nothing was written."""


class ClaimLost(ClientsError):
    """The claim on a message expired before its success was recorded; another receiver may have claimed it."""


class DeadLetter(ClientsError):
    """Raised by an application to dead-letter a message that no retry can process."""

    def __init__(self, reason: str, description: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description


class JournalError(ClientsError):
    """Base class of the errors of a journal and its consumer."""


class JournalMismatch(JournalError):
    """The journal was created by another version, or with settings that conflict with these."""


class JournalMalformed(JournalError):
    """A row of the journal is invalid for this version; its message stays in the queue."""


class JournalRefused(JournalError):
    """Settings, a request or an entity that does not fit: missing rights, a wrong name, an entity without sessions."""


class LeaseLost(JournalError):
    """Another worker has taken over; the write was refused."""


class Unprocessable(DeadLetter):
    """
    Raised by the application for a message that it can never process.

    Its entry becomes faulted and the message goes to the dead-letter queue with this reason and description.
    """


class RelayError(ClientsError):
    """An error between an application and a relay; it quotes the relay, but no tokens or keys."""


class RelayUnavailable(RelayError):
    """An endpoint that is unreachable, does not answer, or has no listener; try another one."""


class NotARelay(RelayUnavailable):
    """The server at the address does not speak the protocol of a relay."""


class RelayRefused(RelayError):
    """
    The relay, or its listener, refused the connection; another endpoint would not help.

    Shape:  status is the HTTP status of the refusal.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class RelayFailed(RelayError):
    """
    No endpoint accepted the connection.

    Shape:  errors has the error of each endpoint that was tried; the cause is the same error, or a group of them.
    """

    def __init__(self, text: str, errors: "Mapping[str, RelayError]") -> None:
        super().__init__(text)
        self.errors = errors
        each = [*errors.values()]
        self.__cause__ = each[0] if len(each) == 1 else ExceptionGroup("the errors of the endpoints", each)


class ConnectionEnded(RelayError):
    """
    The connection has ended; nothing more can be sent or received.

    Shape:  code is the close code of the WebSocket, 1006 if it was not closed properly; is_clean is whether the peer
            closed it on purpose (1000, 1001).
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_clean(self) -> bool:
        """Return whether the peer closed the connection on purpose."""
        return self.code in {1000, 1001}


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Make a failing import inside name the extra that installs the package."""
    try:
        yield
    except ImportError as error:
        text = f"{error.name} is not installed: run pip install 'busway-clients[{name}]'"
        raise MissingExtra(text, name=error.name, path=error.path) from error
