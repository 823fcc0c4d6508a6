"""The error of a send that did not meet its policy."""

from collections.abc import Sequence

from busway_clients.errors import SendFailed, WrongUse
from busway_clients.senders.error_kinds import ErrorKind, classify, describe
from busway_clients.senders.outcome import Outcome


def send_failed(expected: str, outcome: Outcome, unsent: Sequence[str]) -> SendFailed | WrongUse:
    """Return the error of a send, caused by the errors of the namespaces; WrongUse if they all raised WrongUse."""
    wrong = [error for error in outcome.errors.values() if isinstance(error, WrongUse)]
    if len(wrong) == len(outcome.deliveries) and not any(each.accepted for each in outcome.deliveries.values()):
        return wrong[0]
    seen = "; ".join(
        f"{name} accepted {len(each.accepted)} of {len(each.accepted) + len(each.failed)}"
        + ("" if each.error is None else f", {describe(each.error)}")
        for name, each in outcome.deliveries.items()
    )
    failed = SendFailed(f"send: {seen}; expected {expected}", outcome, unsent)
    errors = [*outcome.errors.values()]
    failed.__cause__ = errors[0] if len(errors) == 1 else ExceptionGroup("the errors of the namespaces", errors)
    return failed


def is_outage(failed: SendFailed) -> bool:
    """Return whether a send failed because namespaces are unavailable, and not because of a message."""
    kinds = {classify(error) for error in failed.errors.values()}
    return ErrorKind.UNAVAILABLE in kinds and ErrorKind.AT_FAULT not in kinds


def is_at_fault(failed: SendFailed) -> bool:
    """Return whether a send failed because of a message, so that a retry cannot succeed."""
    return any(classify(error) is ErrorKind.AT_FAULT for error in failed.errors.values())
