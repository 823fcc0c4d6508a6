"""The error of a look into an entity of a namespace, by the condition that an SDK quotes."""

from shared.errors import TargetRefused, TargetUnavailable

FORWARDS = "auto-forwarding"
"""In the text of every refusal of an entity that forwards (issue 626 of azure-service-bus-dotnet)."""
NO_PERMISSION = "no permission to look into it, which needs the right to listen"
_MISSING = ("not-found", "notfound", "status code: 404")
# The SDK reports the refusal of a management link with "client-error" alone, whatever the service named.
_NAMED = (
    ("mgmt link", "it does not exist, or there is no permission to look into it"),
    ("entity-disabled", "it is disabled"),
    ("unauthorized", NO_PERMISSION),
    (FORWARDS, "it forwards its messages to another entity, and cannot be peeked"),
)


class DoesNotExist(TargetRefused):
    """The entity does not exist."""


def look_error(where: str, error: Exception) -> TargetRefused | TargetUnavailable:
    """Return the error for one of an SDK, whose text may have more than a log should."""
    text = str(error).lower()
    if any(condition in text for condition in _MISSING):
        return DoesNotExist(f"{where}: it does not exist")
    for condition, meaning in _NAMED:
        if condition in text:
            return TargetRefused(f"{where}: {meaning}")
    return TargetUnavailable(f"{where}: does not answer, {type(error).__name__}")
