"""What the broker accepts in SASL: a peer names its key or says that tokens follow."""

from busway_broker.protocol.claims import Claims
from shared.amqp import sasl
from shared.amqp.errors import AmqpError

MECHANISMS = ("ANONYMOUS", "PLAIN", "EXTERNAL", "MSSBCBS")


def authenticate(kind: int, body: bytes, claims: Claims) -> bool:
    """Return whether the mechanism is known and, for PLAIN, the key is valid; with the others, tokens follow."""
    _, fields = sasl.read(kind, body, sasl.INIT)
    mechanism = fields.required_text(0)
    if mechanism != "PLAIN":
        return mechanism in MECHANISMS
    try:
        _, name, key = (part.decode() for part in (fields.binary(1) or b"").split(b"\0"))
        claims.put_key(name, key)
    except (ValueError, AmqpError):
        return not claims.are_needed
    return True
