"""
The broker's frames of SASL, in which a peer names its key or says that tokens follow.

Source: OASIS AMQP 1.0, part 5, section 5.3.
"""

from local.broker import errors
from local.broker.protocol.claims import Claims
from shared.amqp import performatives
from shared.amqp.errors import AmqpError, ConnectionViolation
from shared.amqp.fields import Fields, compose_list, read_list, symbols_field
from shared.amqp.frames import SASL, compose

MECHANISMS = ("ANONYMOUS", "PLAIN", "EXTERNAL", "MSSBCBS")


def offer() -> bytes:
    """Return the frame that names the mechanisms."""
    return compose(0, compose_list(performatives.SASL_MECHANISMS, [symbols_field(MECHANISMS)]), kind=SASL)


def outcome(*, is_authenticated: bool) -> bytes:
    """Return the frame that ends SASL."""
    fields = [b"\x50\x00" if is_authenticated else b"\x50\x01", b"\x40"]
    return compose(0, compose_list(0x44, fields), kind=SASL)


def authenticate(kind: int, body: bytes, claims: Claims) -> bool:
    """Return whether the mechanism is known and, for PLAIN, the key is valid; with the others, tokens follow."""
    code, raw, _ = read_list(body)
    if kind != SASL or code != performatives.SASL_INIT:
        raise ConnectionViolation(errors.NOT_ALLOWED, "expected sasl-init")
    fields = Fields("sasl-init", raw)
    mechanism = fields.required_text(0)
    if mechanism != "PLAIN":
        return mechanism in MECHANISMS
    try:
        _, name, key = (part.decode() for part in (fields.binary(1) or b"").split(b"\0"))
        claims.put_key(name, key)
    except (ValueError, AmqpError):
        return not claims.are_needed
    return True
