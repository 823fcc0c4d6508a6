"""The annotations of a message whose other sections are not read."""

from collections.abc import Mapping

from host.dotnet_values import CannotReceive
from shared.amqp import sections, values
from shared.amqp.codec import decode, pairs_of
from shared.amqp.values import Malformed, Value


def annotations_of(payload: bytes) -> Mapping[str, Value]:
    """Return the message annotations of an encoded message; CannotReceive if they are malformed."""
    try:
        section = sections.split(payload).message_annotations
        if not section:
            return {}
        _, start = sections.descriptor(section, 0)
        return {str(key.payload): value for key, value in pairs_of(decode(section, start)[0])}
    except Malformed as error:
        raise CannotReceive(f"malformed AMQP: {error}") from error


def text_of(annotations: Mapping[str, Value], name: str) -> str | None:
    """Return the text of an annotation."""
    value = annotations.get(name, values.NULL)
    return None if value.payload is None else str(value.payload)


def number_of(annotations: Mapping[str, Value], name: str) -> int:
    """Return the number of an annotation, 0 without one."""
    payload = annotations.get(name, values.NULL).payload
    return payload if isinstance(payload, int) else 0
