"""What can go wrong with a journal; each message says where, what was seen and what was expected."""

from busway_clients.errors import ClientsError


class JournalError(ClientsError):
    """Base of what a journal or its consumer can raise."""


class JournalUnavailable(JournalError):
    """The store does not answer; nothing was settled that is not on record, and trying again is safe."""


class JournalMismatch(JournalError):
    """The journal was begun by another version, or with settings that do not go with these."""


class JournalMalformed(JournalError):
    """A row of the journal is not what this version writes; the message concerned stays in its queue."""


class JournalRefused(JournalError):
    """The store or the entity refuses this consumer: rights, a name, sessions that it does not have."""


class Conflict(JournalError):
    """A row was not what the writer believed; nothing was written."""


class LeaseLost(JournalError):
    """Another worker has taken over; what this one wanted to write was refused."""


class Unprocessable(Exception):
    """
    Raised by the application for a message that no further try can help.

    Its entry becomes faulted and the message goes to the dead-letter queue with this reason and description.
    """

    def __init__(self, reason: str, description: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description
