"""
The sections of a sent message in any order, as Azure accepts them.

azure-servicebus and azure-eventhub write the delivery annotations behind the body and the footer, which AMQP 1.0 does
not allow; Microsoft's AMQP library for .NET reads sections in any order.
"""

from shared.amqp.scan import skip
from shared.amqp.sections import DATA, NAMES, SEQUENCE, VALUE, Sections, descriptor, split
from shared.amqp.values import Malformed

_BODIES = (DATA, SEQUENCE, VALUE)
_REPEATABLE = (DATA, SEQUENCE)


def sections_of(message: bytes) -> Sections:
    """Return the sections of a message; Malformed for two of one kind, or for two kinds of body."""
    try:
        return split(message)
    except Malformed:
        # Nearly all messages are in order: only the others are read twice.
        return split(_in_order(message))


def _in_order(message: bytes) -> bytes:
    """Return the message with its sections in the order of the specification."""
    # Lists: joining bytes one by one would take quadratic time for a body of many small sections.
    found: dict[int, list[bytes]] = {}
    position = 0
    while position < len(message):
        number, content = descriptor(message, position)
        stop = skip(message, content, len(message))
        if number in found and number not in _REPEATABLE:
            raise Malformed(f"{NAMES[number]} at byte {position}: the message has two, expected one")
        found.setdefault(number, []).append(message[position:stop])
        position = stop
    kinds = [NAMES[number] for number in _BODIES if number in found]
    if len(kinds) > 1:
        raise Malformed(f"the body is {' and '.join(kinds)}, expected one kind")
    # The numbers of the sections rise in the order of the specification.
    return b"".join(part for number in sorted(found) for part in found[number])
