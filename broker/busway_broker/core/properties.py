"""Setting application properties on a stored message without changing the bytes of the others."""

from collections.abc import Mapping
from dataclasses import replace

from busway_broker.core.content import MAX_HEADERS_BYTES, Content, check_property_sizes, unprocessable
from shared.amqp.map_section import edited
from shared.amqp.sections import Sections, split
from shared.amqp.values import Value, string

type Changes = Mapping[str, Value]

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"
_PREFIX = b"\x00\x53\x74"


def why(reason: str, description: str) -> Changes:
    """Return the properties that say why a message is dead-lettered; empty texts are left out."""
    return {name: string(text) for name, text in ((REASON, reason), (DESCRIPTION, description)) if text}


def _with_changes(content: Content, changes: Changes) -> Sections:
    sections = split(content.bare)
    sections.application_properties = edited(sections.application_properties, _PREFIX, changes, string)
    return sections


def changed(content: Content, changes: Changes) -> Content:
    """Return *content* with application properties set to *changes*."""
    return replace(content, bare=_with_changes(content, changes).encode())


def check_changes(content: Content, changes: Changes) -> None:
    """Raise a Refusal if *content* would have too large application properties (Azure/azure-sdk-for-js issue 4910)."""
    section = _with_changes(content, changes).application_properties
    if section:
        check_property_sizes(section)
    if len(section) + len(content.annotations) > MAX_HEADERS_BYTES:
        raise unprocessable()
