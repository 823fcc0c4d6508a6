"""Applies the statuses that arrive at a site: `python -m examples.shipments.consume SITE`, until it is stopped."""

import os
import signal
import sys
from dataclasses import replace

from azure.servicebus import ServiceBusClient

from busway_clients.sessions import Delivery, JournaledConsumer, Settings, Source
from busway_clients.tables import TableStore
from examples.shipments.ledger import Ledger

PRIMARY = "west"
STORAGE = "AzureWebJobsStorage"
SETTINGS = Settings(
    number="number",
    lease_seconds=5,
    poll_seconds=0.25,
    patience_seconds=2,
    batch=5,
    idle_seconds=0.5,
    accept_seconds=1,
)


def main(site: str) -> None:
    """Run a consumer of *site*; the one of the primary begins first, where both could."""
    ledger = Ledger()

    def apply(delivery: Delivery) -> None:
        shipment, _, number = delivery.message_id.partition("/")
        # Only after a worker was lost is it open whether it had come to the end.
        if delivery.may_have_run and ledger.has(shipment, int(number)):
            return
        ledger.apply(shipment, int(number), site, delivery.token)

    settings = SETTINGS if site == PRIMARY else replace(SETTINGS, head_start_seconds=5)
    store = TableStore.from_connection_string(os.environ[STORAGE], "shipmentsJournal")
    client = ServiceBusClient.from_connection_string(os.environ[site.upper()], retry_total=0)
    with client:
        source = Source("shipments", subscription="application")
        consumer = JournaledConsumer(client, source, store, apply, site=site, settings=settings, lanes=3)
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        consumer.run()
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
