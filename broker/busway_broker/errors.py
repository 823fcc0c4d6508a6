"""
The errors that the broker answers with: AMQP conditions and descriptions.

A `Refusal` concerns one request, message or link, a `LinkRefusal` the link as well; `shared.amqp.errors` has the
errors that end a session or connection.

Sources: OASIS AMQP 1.0, part 2, section 2.8; the tables from condition to exception in the Service Bus SDKs.
"""

from typing import Final

from shared.amqp.errors import AmqpError

CONNECTION_FORCED: Final = "amqp:connection:forced"
INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
DETACH_FORCED: Final = "amqp:link:detach-forced"
LINK_STOLEN: Final = "amqp:link:stolen"
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK: Final = "amqp:transaction:rollback"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"

ARGUMENT_ERROR: Final = "com.microsoft:argument-error"
ARGUMENT_OUT_OF_RANGE: Final = "com.microsoft:argument-out-of-range"
AUTH_FAILED: Final = "com.microsoft:auth-failed"
DEAD_LETTER: Final = "com.microsoft:dead-letter"
GEO_REPLICATION_INVALID_OFFSET: Final = "com.microsoft:georeplication:invalid-offset"
ENTITY_DISABLED: Final = "com.microsoft:entity-disabled"
ENTITY_ALREADY_EXISTS: Final = "com.microsoft:entity-already-exists"
MESSAGE_LOCK_LOST: Final = "com.microsoft:message-lock-lost"
MESSAGE_NOT_FOUND: Final = "com.microsoft:message-not-found"
SERVER_BUSY: Final = "com.microsoft:server-busy"
SESSION_CANNOT_BE_LOCKED: Final = "com.microsoft:session-cannot-be-locked"
SESSION_LOCK_LOST: Final = "com.microsoft:session-lock-lost"
TIMEOUT: Final = "com.microsoft:timeout"


class Refusal(AmqpError):
    """One request, message or link is refused; SDKs read the condition, people the description."""


class LinkRefusal(Refusal):
    """A message is refused, and the link on which it came ends: the peer learns of it for all that has no answer."""
