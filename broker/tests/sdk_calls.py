"""What tests do with the SDK's client, each with entities of its own."""

import itertools
from typing import Any, ClassVar

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage

from busway_broker.core.content import read_content
from busway_broker.thread import RunningBroker

type Messages = ServiceBusMessage | list[ServiceBusMessage]


class Bus:
    """The namespace `west` of a broker, and a client of it."""

    _numbers: ClassVar[dict[str, "itertools.count[int]"]] = {}

    def __init__(self, broker: RunningBroker, client: ServiceBusClient) -> None:
        self.broker = broker
        self.client = client

    def entity(self, kind: str) -> str:
        """Return the name of an entity of a kind that no other test uses."""
        return f"{kind}-{next(self._numbers.setdefault(kind, itertools.count()))}"

    def send(self, name: str, messages: Messages | AmqpAnnotatedMessage) -> None:
        """Send messages to a queue or topic."""
        with self.client.get_queue_sender(name) as sender:
            sender.send_messages(messages)

    def publish(self, name: str, messages: Messages) -> None:
        """Add messages to a queue or topic without a sender, for tests of what happens afterwards."""
        contents = []
        for message in messages if isinstance(messages, list) else [messages]:
            outgoing = PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)
            contents.append(read_content(bytes(encode_payload(bytearray(), outgoing))))
        self.broker.inspect("west", lambda west: [west.target(name).publish(content) for content in contents])

    def receive(self, name: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
        """Receive messages of a queue, up to a number or until none comes for two seconds."""
        with self.client.get_queue_receiver(name, **options) as receiver:
            messages: list[ServiceBusReceivedMessage] = []
            while len(messages) < count and (more := receiver.receive_messages(count - len(messages), max_wait_time=2)):
                messages += more
            return messages

    def take(self, name: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
        """Receive and delete."""
        return self.receive(name, count, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, **options)


def some[Found](value: Found | None) -> Found:
    """Return a value of a received message that the SDK's types allow to be missing."""
    assert value is not None
    return value
