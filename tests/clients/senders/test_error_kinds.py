"""What each error of the SDK means to a sender; a class that the SDK adds has to be given a meaning."""

import inspect
import struct
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import exceptions

from busway_clients import WrongUse
from busway_clients.errors import Unencodable
from busway_clients.senders.error_kinds import ErrorKind, classify, describe, is_unavailable

MEANINGS = {
    ErrorKind.UNAVAILABLE: {"ServiceBusConnectionError", "ServiceBusCommunicationError", "OperationTimeoutError"},
    ErrorKind.REFUSED: {
        "ServiceBusServerBusyError",
        "ServiceBusAuthenticationError",
        "ServiceBusAuthorizationError",
        "MessagingEntityNotFoundError",
        "MessagingEntityDisabledError",
        "ServiceBusQuotaExceededError",
        # What a send does not raise, and what says nothing by itself, switches nothing and holds nothing.
        "AutoLockRenewFailed",
        "AutoLockRenewTimeout",
        "MessageLockLostError",
        "MessageNotFoundError",
        "MessagingEntityAlreadyExistsError",
        "ServiceBusError",
        "SessionCannotBeLockedError",
        "SessionLockLostError",
        "MessageAlreadySettled",
    },
    ErrorKind.AT_FAULT: {"MessageSizeExceededError"},
}


def errors() -> list[Any]:
    """Return every error class of the SDK with one of its kind; some take a text, some take nothing."""
    kinds: list[tuple[str, Any]] = inspect.getmembers(exceptions, inspect.isclass)
    ours = [(name, kind) for name, kind in kinds if kind.__module__ == exceptions.__name__]
    base = exceptions.ServiceBusError.__init__
    return [(name, kind("text") if kind.__init__ is base else kind()) for name, kind in ours]


@pytest.mark.parametrize(("name", "error"), errors(), ids=lambda each: each if isinstance(each, str) else "")
def test_every_error_class_of_the_sdk_is_classified(name: str, error: Any) -> None:
    assert name in MEANINGS[classify(error)]


@pytest.mark.parametrize(
    ("inner", "meaning"),
    [
        (ConnectionRefusedError(), ErrorKind.UNAVAILABLE),
        (TimeoutError(), ErrorKind.UNAVAILABLE),
        (EOFError(), ErrorKind.UNAVAILABLE),
        (ClientAuthenticationError("no token"), ErrorKind.REFUSED),
        (AttributeError(), ErrorKind.REFUSED),
        # A peer that is not a namespace; for an invalid message, a sender raises its own error.
        (ValueError("secret"), ErrorKind.UNAVAILABLE),
        (TypeError("secret"), ErrorKind.UNAVAILABLE),
        (IndexError(), ErrorKind.UNAVAILABLE),
        (struct.error(), ErrorKind.UNAVAILABLE),
    ],
)
def test_wrapped_errors_are_classified_by_their_cause(inner: Any, meaning: Any) -> None:
    wrapped = exceptions.ServiceBusError("Handler failed", error=inner)
    assert classify(wrapped) is meaning
    assert is_unavailable(wrapped) is (meaning is ErrorKind.UNAVAILABLE)
    assert describe(wrapped) == "ServiceBusError"


def test_errors_of_this_package_are_classified() -> None:
    assert classify(Unencodable()) is ErrorKind.AT_FAULT
    assert classify(WrongUse()) is ErrorKind.REFUSED
