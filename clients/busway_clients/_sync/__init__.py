# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""The asyncio versions of the clients, which use the senders and receivers of `azure.servicebus`."""

from busway_clients._sync.active_sender import ActiveSender
from busway_clients._sync.deduplicating_receiver import DeduplicatingReceiver
from busway_clients._sync.durable_sender import DurableSender
from busway_clients._sync.endpoints.receiver import FollowingReceiver
from busway_clients._sync.endpoints.sender import FollowingSender
from busway_clients._sync.endpoints.watch import EndpointWatch
from busway_clients._sync.passive_sender import PassiveSender

__all__ = [
    "ActiveSender",
    "DeduplicatingReceiver",
    "DurableSender",
    "EndpointWatch",
    "FollowingReceiver",
    "FollowingSender",
    "PassiveSender",
]
