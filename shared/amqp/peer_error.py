"""The errors that the other end of a connection sends: what of them may be shown."""

from shared.amqp.errors import AmqpError

# AMQP 1.0, part 2 (2.8.15 to 2.8.18), part 3 and part 4; those of Service Bus and Event Hubs, as their SDKs know them.
_CONDITIONS = frozenset(
    f"{maker}{name}"
    for maker, names in {
        "amqp:": "internal-error not-found unauthorized-access decode-error resource-limit-exceeded not-allowed "
        "invalid-field not-implemented resource-locked precondition-failed resource-deleted illegal-state "
        "frame-size-too-small",
        "amqp:connection:": "forced framing-error redirect",
        "amqp:session:": "window-violation errant-link handle-in-use unattached-handle",
        "amqp:link:": "detach-forced transfer-limit-exceeded message-size-exceeded redirect stolen",
        "amqp:transaction:": "unknown-id rollback timeout",
        "com.microsoft:": "server-busy timeout message-lock-lost session-lock-lost session-cannot-be-locked "
        "message-not-found session-not-found entity-disabled entity-already-exists auth-failed publisher-revoked "
        "argument-error argument-out-of-range operation-cancelled message-size-exceeded precondition-failed "
        "message-wait-timeout store-lock-lost container-close producer-epoch-stolen "
        "out-of-order-sequence tracking-id reference-id partition-not-owned address-already-in-use "
        "not-found no-match-link-subscription transfer-destination-address",
    }.items()
    for name in names.split()
)


def shown_condition(condition: str | None) -> str:
    """Return a *condition* for people: the other end may have written anything, also what was sent to it."""
    if not condition:
        return "without a condition"
    return condition if condition in _CONDITIONS else "with a condition that is not known"


class PeerError(AmqpError):
    """An error that the other end sent: as text only its condition, because the description may quote a message."""

    def __init__(self, condition: str, description: str) -> None:
        """Keep both parts for those who decide by them."""
        super().__init__(condition, description)
        self.args = (shown_condition(condition),)
