"""
The frames of SASL at both ends.

Source: OASIS AMQP 1.0, part 5, section 5.3.
"""

from collections.abc import Sequence

from shared.amqp.codec import encode
from shared.amqp.errors import NOT_ALLOWED, ConnectionViolation
from shared.amqp.fields import Fields, compose_list, read_list, symbol_field, symbols_field, text_field
from shared.amqp.frames import SASL, compose
from shared.amqp.values import binary

MECHANISMS, INIT, _CHALLENGE, _RESPONSE, OUTCOME = range(0x40, 0x45)


def mechanisms(names: Sequence[str]) -> bytes:
    """Return the frame with which a server offers mechanisms."""
    return compose(0, compose_list(MECHANISMS, [symbols_field(names)]), kind=SASL)


def init(mechanism: str, response: bytes, host_name: str | None) -> bytes:
    """Return the frame with which a client chooses a mechanism; *response* may have a password."""
    fields = [symbol_field(mechanism), encode(binary(response)), text_field(host_name)]
    return compose(0, compose_list(INIT, fields), kind=SASL)


def outcome(code: int) -> bytes:
    """Return the frame that ends SASL; 0 is a success."""
    return compose(0, compose_list(OUTCOME, [b"\x50%c" % code, b"\x40"]), kind=SASL)


def read(kind: int, body: bytes, *expected: int) -> tuple[int, Fields]:
    """Return the code and the fields of a frame, one of those *expected*."""
    code, raw, _ = read_list(body)
    if kind != SASL or code not in expected:
        raise ConnectionViolation(
            NOT_ALLOWED, f"SASL: got frame 0x{code:02x}, expected {' or '.join(f'0x{each:02x}' for each in expected)}"
        )
    return code, Fields("SASL frame", raw)
