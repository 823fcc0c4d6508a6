"""
The errors of AMQP: a condition for programs and a description for people, as one end sends them to the other.

Source: OASIS AMQP 1.0, part 2, section 2.8.
"""

from typing import Final

from shared.errors import BuswayError

DECODE_ERROR: Final = "amqp:decode-error"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"


class AmqpError(BuswayError):
    """An error that one end sends to the other, or what the other did instead of what AMQP 1.0 asks for."""

    def __init__(self, condition: str, description: str) -> None:
        """Keep both parts; either is empty if the other end has sent none."""
        super().__init__(": ".join(part for part in (condition, description) if part))
        self.condition = condition
        self.description = description


class Violation(AmqpError):
    """The peer violated the protocol."""


class SessionViolation(Violation):
    """It violated that of an AMQP session, which ends."""


class ConnectionViolation(Violation):
    """It violated that of the connection, which is closed."""


class ConnectionClosed(ConnectionError):
    """The end of a connection from this side: its user asked for it, or the peer was silent."""
