"""Sends the statuses of shipments to west: `python -m examples.shipments.send SHIPMENTS STATUSES`."""

import os
import sys

from azure.servicebus import ServiceBusClient, ServiceBusMessage


def main(shipments: int, statuses: int) -> None:
    """Send the first status of each shipment, then the second of each, and so on."""
    with (
        ServiceBusClient.from_connection_string(os.environ["WEST"]) as client,
        client.get_topic_sender("shipments") as sender,
    ):
        for number in range(1, statuses + 1):
            sender.send_messages(
                [
                    ServiceBusMessage(
                        f"status {number}",
                        session_id=f"shipment-{shipment}",
                        message_id=f"shipment-{shipment}/{number}",
                        application_properties={"number": number},
                    )
                    for shipment in range(1, shipments + 1)
                ]
            )
    print(f"{shipments * statuses} statuses of {shipments} shipments sent to west")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
