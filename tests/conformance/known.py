"""Failures that are not the broker's fault, or that stay, with the reason; docs/broker.md lists them too."""

import re

_ENTRIES: tuple[tuple[str, str, str], ...] = (
    (
        "python-administration",
        "test_(async_)?mgmt_(queue|topic)_create_with_(queue|topic)_description$",
        "a maximum message size needs no Premium tier here, so it is not refused",
    ),
    (
        "python-service-bus",
        "test_async_queue_operation_negative",
        "the test replaces a method of the client by one that lacks a parameter of it",
    ),
)


def reason_for(part: str, test: str) -> str | None:
    """Return why a test of a part may fail, None if it may not."""
    return next((why for name, tests, why in _ENTRIES if re.fullmatch(name, part) and re.search(tests, test)), None)
