"""Setting application properties on a stored message without changing the bytes of the others."""

from collections.abc import Mapping
from dataclasses import replace

from busway_broker.core.content import MAX_HEADERS_BYTES, Content, check_property_sizes, unprocessable
from shared.amqp.codec import encode
from shared.amqp.scan import join_map, map_entries
from shared.amqp.sections import Sections, descriptor, split
from shared.amqp.values import Value, string

type Changes = Mapping[str, Value]

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"
_PREFIX = b"\x00\x53\x74"


def why(reason: str, description: str) -> Changes:
    """Return the properties that say why a message is dead-lettered; empty texts are left out."""
    return {name: string(text) for name, text in ((REASON, reason), (DESCRIPTION, description)) if text}


def changed(content: Content, changes: Changes) -> Content:
    """Return *content* with application properties set to *changes*."""
    sections = split(content.bare)
    set_properties(sections, changes)
    return replace(content, bare=sections.encode())


def check_changes(content: Content, changes: Changes) -> None:
    """Raise a Refusal if *content* would have too large application properties (Azure/azure-sdk-for-js issue 4910)."""
    section = split(changed(content, changes).bare).application_properties
    check_property_sizes(section)
    if len(section) + len(content.annotations) > MAX_HEADERS_BYTES:
        raise unprocessable()


def set_properties(sections: Sections, changes: Changes) -> None:
    """Set application properties in *sections*; an existing one keeps its position."""
    section = sections.application_properties
    pairs: dict[object, bytes] = {}
    if section:
        for key, start, _, stop in map_entries(section, descriptor(section, 0)[1], len(section)):
            pairs[section[start:stop] if key is None else key] = section[start:stop]
    for name, value in changes.items():
        pairs[name] = encode(string(name)) + encode(value)
    sections.application_properties = join_map(_PREFIX, pairs.values(), len(pairs))
