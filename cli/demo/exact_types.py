"""
The bytes of the messages that azure-servicebus receives.

The SDK's decoder loses the types of properties, so its messages cannot show whether a type has changed. It fails on a
char and on large decimals, which .NET applications may send. So the bytes are kept beside the decoded message. That
replaces one private name of the SDK, for this check only: the SDK still does the receiving.
"""

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp.aio import _receiver_async
from azure.servicebus._pyamqp.message import Message

from shared.amqp.sections import split


class KeptMessage(Message):
    """The SDK's decoded message, with the bytes it was decoded from."""

    encoded: bytes


def keep_encoded_messages() -> None:
    """Make the SDK keep the bytes of every message that it receives after this call."""
    vars(_receiver_async)["decode_payload"] = _decode_and_keep


def kept_bytes(message: ServiceBusReceivedMessage) -> bytes:
    """Return the bytes of *message*; raises TypeError if it was received before `keep_encoded_messages`."""
    decoded = message._message  # noqa: SLF001 - the seam, see above
    if not isinstance(decoded, KeptMessage):
        raise TypeError(f"the SDK handed over a {type(decoded).__name__}, expected one with its bytes kept")
    return decoded.encoded


def _decode_and_keep(buffer: memoryview) -> KeptMessage:
    content = bytes(buffer)
    try:
        message = KeptMessage(*decode_payload(buffer))
    except (TypeError, ValueError):
        # Its decoder fails on a char and on large decimals, and the receiver with it; it gets the rest of the message.
        raw = split(content)
        raw.application_properties = b""
        message = KeptMessage(*decode_payload(memoryview(raw.encode())))
    message.encoded = content
    return message
