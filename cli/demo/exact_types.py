"""
The bytes of the messages that azure-servicebus receives.

The SDK decodes what it receives and loses the types of properties, so that nobody can prove with it that none has
changed; and a char or a large decimal, which .NET applications may send, it cannot decode at all. So the bytes are kept
beside what it decodes. This touches one private name of the SDK, for the sake of the proof alone: what is received, and
how, stays the SDK's affair.
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
    """Make the SDK keep the bytes of every message that it receives from now on."""
    vars(_receiver_async)["decode_payload"] = _decode_and_keep


def encoded(message: ServiceBusReceivedMessage) -> bytes:
    """Return the bytes of *message*; raises TypeError for one that was received before they were kept."""
    decoded = message._message  # noqa: SLF001 - the seam, see above
    if not isinstance(decoded, KeptMessage):
        raise TypeError(f"the SDK handed over a {type(decoded).__name__}, expected one with its bytes kept")
    return decoded.encoded


def _decode_and_keep(buffer: memoryview) -> KeptMessage:
    content = bytes(buffer)
    try:
        message = KeptMessage(*decode_payload(buffer))
    except (TypeError, ValueError):
        # Its decoder fails at a char and at large decimals, and its receiver with it; it gets the rest of the message.
        raw = split(content)
        raw.application_properties = b""
        message = KeptMessage(*decode_payload(memoryview(raw.encode())))
    message.encoded = content
    return message
