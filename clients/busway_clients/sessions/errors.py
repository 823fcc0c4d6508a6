"""Errors of a journal; each message says where, what was found and what was expected."""

from busway_clients.errors import ClientsError, DeadLetter


class JournalError(ClientsError):
    """Base class of the errors of a journal and its consumer."""


class JournalUnavailable(JournalError):
    """The store does not answer; no message was settled without a record, and a retry is safe."""


class JournalMismatch(JournalError):
    """The journal was created by another version, or with settings that conflict with these."""


class JournalMalformed(JournalError):
    """A row of the journal is invalid for this version; its message stays in the queue."""


class JournalRefused(JournalError):
    """The store or entity refuses this consumer: missing rights, a wrong name, or an entity without sessions."""


class Conflict(JournalError):
    """A row has changed since the writer read it; nothing was written."""


class LeaseLost(JournalError):
    """Another worker has taken over; the write was refused."""


class Unprocessable(DeadLetter):
    """
    Raised by the application for a message that it can never process.

    Its entry becomes faulted and the message goes to the dead-letter queue with this reason and description.
    """
