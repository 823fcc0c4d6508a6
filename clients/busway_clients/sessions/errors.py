"""Errors of a journal; each message says where, what was found and what was expected."""

from busway_clients.errors import ClientsError, DeadLetter


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
