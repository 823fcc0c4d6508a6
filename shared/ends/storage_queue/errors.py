"""The errors of storage queues: of a target, to which Busway sends, and of a source, whose messages it takes."""

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from shared.ends.conditions import (
    DISABLED,
    INVALID,
    MISSING,
    THROTTLED,
    TOO_LARGE,
    UNAUTHORIZED,
    UNREACHABLE,
    Reaction,
    after_requested_wait,
    as_error,
)
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.stores.storage_errors import error_code

# Source: Microsoft Learn, "Queue Storage error codes" and "Common REST API error codes".
_BY_STATUS = {401: UNAUTHORIZED, 403: UNAUTHORIZED, 404: MISSING, 413: TOO_LARGE, 429: THROTTLED, 503: THROTTLED}
_BY_CODE = {
    "RequestBodyTooLarge": TOO_LARGE,
    "MessageTooLarge": TOO_LARGE,
    "InvalidXmlDocument": INVALID,
    "InvalidXmlNodeValue": INVALID,
    "OutOfRangeQueryParameterValue": INVALID,
    "InvalidQueryParameterValue": INVALID,
    "QueueDisabled": DISABLED,
    "AccountIsDisabled": DISABLED,
}
_OF_A_SOURCE = {
    UNAUTHORIZED: "access is denied",
    MISSING: "the queue does not exist",
    DISABLED: "the queue is disabled",
    THROTTLED: "the storage account is busy",
    UNREACHABLE: "the storage account cannot be reached",
}

type Failure = AzureError | TimeoutError | OSError


def sending_error(where: str, error: Failure) -> BuswayError:
    """Return the error of Busway for a message that could not be sent to the queue *where*."""
    reaction, seen = _cause(error)
    if reaction is UNREACHABLE and getattr(error, "status_code", None) is None:
        seen += "; a message without an answer is sent again"
    return as_error(reaction, where, seen, error)


def source_error(where: str, action: str, error: Failure) -> TargetRefused | TargetUnavailable:
    """Return the error for an *action* on the queue *where* that failed, such as `read messages`; nothing was sent."""
    reaction, seen = _cause(error)
    text = f"{where}: cannot {action}: {_OF_A_SOURCE.get(reaction, 'the request is refused')}, {seen}"
    if reaction.error is TargetRefused:
        return TargetRefused(text)
    return TargetUnavailable(text, retry_after=reaction.retry_after)


def _cause(error: Failure) -> tuple[Reaction, str]:
    """Return the row of an error, and what was seen of it."""
    if isinstance(error, HttpResponseError) and error.status_code is not None:
        code = error_code(error)
        seen = f"the storage account answers {error.status_code}" + (f" {code}" if code else "")
        return _reaction(error, code), seen
    if isinstance(error, ClientAuthenticationError):
        return UNAUTHORIZED, f"there is no valid key or token, {type(error).__name__}"
    return UNREACHABLE, "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__


def _reaction(error: HttpResponseError, code: str) -> Reaction:
    reaction = _BY_CODE.get(code) or _BY_STATUS.get(error.status_code or 0, UNREACHABLE)
    headers = getattr(error.response, "headers", None)
    return after_requested_wait(reaction, None if headers is None else headers.get("Retry-After"))
