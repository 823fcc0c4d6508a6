"""
The exceptions of Azure.Messaging.ServiceBus, by the AMQP condition that led to them, and their text.

Source: AmqpError.ToMessagingContractException and ServiceBusException.Message (Azure/azure-sdk-for-net,
sdk/servicebus/Azure.Messaging.ServiceBus/src).
"""

MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"

_REASONS = {
    MESSAGE_LOCK_LOST: "MessageLockLost",
    SESSION_LOCK_LOST: "SessionLockLost",
    "com.microsoft:message-not-found": "MessageNotFound",
    "com.microsoft:server-busy": "ServiceBusy",
    "com.microsoft:timeout": "ServiceTimeout",
    "com.microsoft:entity-disabled": "MessagingEntityDisabled",
    "amqp:not-found": "MessagingEntityNotFound",
    "amqp:resource-limit-exceeded": "QuotaExceeded",
    "amqp:link:detach-forced": "ServiceCommunicationProblem",
    "amqp:connection:forced": "ServiceCommunicationProblem",
}
_TEXTS = {
    MESSAGE_LOCK_LOST: "The lock supplied is invalid. Either the lock expired, or the message has already been removed"
    " from the queue.",
    SESSION_LOCK_LOST: "The session lock has expired on the MessageSession. Accept a new MessageSession.",
}
_UNAUTHORIZED = "amqp:unauthorized-access"
_NO_CONNECTION = "ServiceCommunicationProblem"
_LONGEST = 4_096
_GUIDE = "https://aka.ms/azsdk/net/servicebus/exceptions/troubleshoot"


class Failure(Exception):
    """A call that .NET answers with an exception; the text begins as that of the exception's ToString."""


class ServiceBusFailure(Failure):
    """A ServiceBusException."""

    def __init__(self, condition: str | None, text: str = "") -> None:
        """Take the condition that the service sent, None without an answer, and its text if it sent one."""
        self.condition = condition
        reason = _NO_CONNECTION if condition is None else _REASONS.get(condition, "GeneralError")
        text = text or _TEXTS.get(condition or "", f"The service answered with {condition}.")
        if condition == _UNAUTHORIZED:
            super().__init__(f"System.UnauthorizedAccessException: {text}")
            return
        super().__init__(
            f"Azure.Messaging.ServiceBus.ServiceBusException: {text} ({reason}). For troubleshooting information, see"
            f" {_GUIDE}."
        )


def check_length(name: str, text: str | None) -> None:
    """Raise the Failure with which .NET refuses a text before it asks the service."""
    if len(text or "") > _LONGEST:
        raise Failure(
            f"System.ArgumentOutOfRangeException: The argument '{name}' cannot exceed {_LONGEST} characters."
            f" (Parameter '{name}')"
        )
