"""
Transfers of encoded messages on the links of Microsoft's SDKs.

The public ways to send rebuild each message from decoded parts: they lose the types of properties, and they take longer
than everything else that Busway does with a message (benchmarks/worker_cost.py). Here the bytes go into the frames as
they are, a batch as the one message that it is. The SDKs for Service Bus and Event Hubs have the same AMQP client, each
a copy of its own.
"""

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

# AMQP 1.0, 2.7.5, and the AMQP protocol guides of Service Bus and Event Hubs.
ONE_MESSAGE = 0
BATCH = 0x80013700


@dataclass(frozen=True, slots=True)
class EncodedMessage:
    """The bytes of a message, or of a batch of them, with the format that says which it is."""

    content: bytes
    message_format: int = BATCH


def transfer_encoded_messages(link: Any, sent: object) -> None:
    """Let the SDK's sender *link* transfer an EncodedMessage; *sent* is the SDK's state of a delivery that has left."""
    transfer_others: Callable[[Any], Awaitable[bool]] = link._outgoing_transfer

    async def transfer(delivery: Any) -> bool:
        message = delivery.message
        if not isinstance(message, EncodedMessage):
            return await transfer_others(delivery)
        number = link.delivery_count + 1
        names = ("rcv_settle_mode", "state", "resume", "aborted", "batchable")
        delivery.frame = dict.fromkeys(names) | {
            "handle": link.handle,
            "delivery_tag": struct.pack(">I", number),
            "message_format": message.message_format,
            "settled": False,
            "more": False,
            "payload": message.content,
        }
        await link._session._outgoing_transfer(delivery, None)
        if delivery.transfer_state == sent:
            link.delivery_count = number
            link.current_link_credit -= 1
            delivery.sent = True
        return False

    link._outgoing_transfer = transfer
