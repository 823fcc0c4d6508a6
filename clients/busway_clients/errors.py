"""What can go wrong in this package; each message says where, what was seen and what was expected."""


class ClientsError(Exception):
    """Base of all errors of this package."""
