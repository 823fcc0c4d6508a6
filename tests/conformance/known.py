"""Failures that are not the broker's fault, or that stay, with the reason."""

import re

_ENTRIES: tuple[tuple[str, str, str], ...] = (
    (
        "python-administration",
        "test_(async_)?mgmt_(queue|topic)_create_with_(queue|topic)_description$",
        "a maximum message size needs no Premium tier here, so it is not refused",
    ),
    (
        "python-service-bus",
        "test_(async_)?queue_operation_negative",
        "the test replaces a method of the client by one that lacks a parameter of it",
    ),
    (
        "python-service-bus",
        "test_receive_iter_no_http_suppression",
        "it uses no service: it reads the spans of a client whose packages for tracing are not those of the project",
    ),
    (
        "python-service-bus",
        "test_message_property",
        "the broker refuses binary application properties for queues too: docs/decisions/0073",
    ),
    (
        "python-service-bus",
        "test_(async_)?session_.*(with_no_session|failure_is_idempotent|client_session_pool)",
        "it is expected to fail in Azure, by a defect that the broker does not have",
    ),
    (
        "python-service-bus",
        "test_(async_)?next_available_session_timeout_value",
        "this version of the client opens the link within max_wait_time, 5 s, and the test expects more than 65 s",
    ),
)


def reason_for(part: str, test: str) -> str | None:
    """Return why a test of a part may fail, None if it may not."""
    return next((why for name, tests, why in _ENTRIES if re.fullmatch(name, part) and re.search(tests, test)), None)
